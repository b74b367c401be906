"""Effective position of an entry: its own, or the one that a redrive kept."""

from __future__ import annotations

from collections.abc import Mapping

from events.names import Position
from runtime.errors import MalformedEvent

__all__ = ["POSITION_FIELD", "kept_position"]

POSITION_FIELD = b"position"


def kept_position(fields: Mapping[bytes, bytes], own: Position) -> int:
    """Return the number of the effective position.

    Raises:
        MalformedEvent: the field is not a number, or is newer than the entry itself: with it a
            publisher could overtake every later change of the document.
    """
    text = fields.get(POSITION_FIELD)
    if text is None:
        return own.number
    if not text.isdigit() or len(text) > 19:
        raise MalformedEvent(f"position {text[:40]!r} is not a position")
    if int(text) > own.number:
        raise MalformedEvent(f"position {int(text)} is newer than the entry that names it")
    return int(text)
