"""Entries of a stream as Redis returns them, and the order of their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from events.names import LARGEST_SEQUENCE

__all__ = ["Entry", "entries_of", "following", "is_absent", "order", "preceding"]


class Entry(NamedTuple):
    """One entry of a stream."""

    id: str
    fields: Mapping[bytes, bytes]


def entries_of(reply: Iterable[Any] | None) -> list[Entry]:
    """Entries of an XRANGE, XREVRANGE or one stream's XREAD reply.

    Redis 6.2 returns nil for an entry that was trimmed while it was pending; it is left out.
    """
    return [Entry(item[0].decode(), item[1]) for item in reply or () if item and item[1]]


def is_absent(reply: Any) -> bool:
    """Return whether a reply reports a missing stream or group.

    Raises:
        RedisError: it reports another error, such as a missing permission.
    """
    if not isinstance(reply, Exception):
        return False
    if isinstance(reply, ResponseError) and str(reply).startswith(("no such key", "NOGROUP")):
        return True
    raise reply


def order(entry_id: str) -> tuple[int, int]:
    """Return the sort key of an id: milliseconds, sequence."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


def following(entry_id: str) -> str:
    """Return the smallest id above an id."""
    milliseconds, sequence = order(entry_id)
    return f"{milliseconds}-{sequence + 1}"


def preceding(entry_id: str) -> str:
    """Return the largest id of a possible ``LogPosition`` below an id; "0-0" for "0-0"."""
    milliseconds, sequence = order(entry_id)
    if sequence:
        return f"{milliseconds}-{sequence - 1}"
    return f"{milliseconds - 1}-{LARGEST_SEQUENCE}" if milliseconds else "0-0"
