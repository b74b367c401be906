"""Rank of a change: the single ordering rule of the fence, of folds and of compaction."""

from __future__ import annotations

from collections.abc import Mapping

from events.models import Origin
from events.names import Position
from runtime.errors import MalformedEvent

__all__ = ["POSITION_FIELD", "Rank", "kept_position", "rank_of"]

Rank = tuple[int, int, int]
"""Rank of a change: of two changes of one document, the one with the greater rank wins."""


def rank_of(position: int, partition: int, origin: Origin | None) -> Rank:
    """Return the rank of a change at a log position.

    A revision is a position too: a source's change counts as of the moment at which its sync began,
    however late it was published. So a publisher that was suspended can't restore an old revision,
    and any two changes can be compared, in any order.
    """
    return position if origin is None else origin.revision, position, partition


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
