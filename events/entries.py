"""Entries of a stream as Redis returns them, and the order of their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

__all__ = ["Entry", "entries_of", "preceding"]

_LARGEST_SEQUENCE = 2**64 - 1


class Entry(NamedTuple):
    """One entry of a stream."""

    id: str
    fields: Mapping[bytes, bytes]


def entries_of(reply: Iterable[Any] | None) -> list[Entry]:
    """Entries of an XRANGE, XREVRANGE or one stream's XREAD reply.

    Redis 6.2 returns nil for an entry that was trimmed while it was pending; it is left out.
    """
    return [Entry(item[0].decode(), item[1]) for item in reply or () if item and item[1]]


def preceding(entry_id: str) -> str:
    """The largest id below an id; of "0-0" it is itself."""
    milliseconds, _, sequence = entry_id.partition("-")
    if int(sequence):
        return f"{milliseconds}-{int(sequence) - 1}"
    if int(milliseconds):
        return f"{int(milliseconds) - 1}-{_LARGEST_SEQUENCE}"
    return "0-0"
