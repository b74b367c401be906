"""Contents of changes in the streams, which the look at the streams does not load."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable

from events.change_log import LoggedChange
from events.connection import redis_errors
from events.entries import entries_of
from processors.reconciling.case import Case
from processors.reconciling.stream_reading import StreamEntry, logged

__all__ = ["texts_in_streams", "whole_changes"]


async def texts_in_streams(case: Case, hashes: Collection[str]) -> dict[str, str]:
    """Read texts by hash in hex, as far as the streams have them.

    Raises:
        Unavailable: Redis can't be reached.
    """
    wanted = {
        reference.sha256: entry
        for entry in case.evidence.entries
        if (reference := entry.change.event.data.content_ref) is not None
        and reference.sha256 in hashes
    }
    texts: dict[str, str] = {}
    for sha256, entry in wanted.items():
        async for change in whole_changes(case, [entry]):
            text = change.event.data.content
            if text is not None:
                texts[sha256] = text
    return texts


async def whole_changes(case: Case, entries: Iterable[StreamEntry]) -> AsyncIterator[LoggedChange]:
    """Read changes with their contents; changes that were trimmed since the look are left out.

    Raises:
        Unavailable: Redis can't be reached.
    """
    tools = case.desk.tools
    for entry in entries:
        key = tools.names.stream(*entry.place)
        with redis_errors():
            reply = await tools.redis.xrange(key, entry.entry_id, entry.entry_id)
        for stored in entries_of(reply):
            change = logged(stored, entry.place)
            if change is not None:
                yield change
