"""Live feed of outcomes: one reader of the streams serves any number of subscribers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import timedelta
from typing import NamedTuple

from events.client.outcomes import Outcome, Outcomes
from events.server.connection import LONGEST_BLOCK
from events.streams.entries import order
from runtime.errors import HeadraceError, Unavailable

__all__ = ["FedOutcome", "OutcomeFeed"]

_QUEUE = 4_000
"""Outcomes that wait for a subscriber; subscribers share them, so one takes a pointer."""

_READ_AT_ONCE = 1_000
"""Outcomes of all partitions together that are read before subscribers can take them."""

_READ_AGAIN_AT_ONCE = 64
_RETRY_SECONDS = 1.0
_Item = tuple[int, str, Outcome]


class FedOutcome(NamedTuple):
    """An outcome, and the entry id of each partition up to which the subscriber has read.

    ``outcome`` is None at the beginning, and whenever no outcome has come for a while.
    """

    positions: Mapping[int, str]
    outcome: Outcome | None


class OutcomeFeed:
    """Sends each outcome to every subscriber, while there are any.

    A subscriber that does not take them as fast as they come reads them from the streams itself, a
    few at a time, as long as it is behind: so nothing but the streams grows, which keep the latest
    100,000 outcomes of each partition.
    """

    def __init__(self, outcomes: Outcomes) -> None:
        self._outcomes = outcomes
        self._subscribers: set[asyncio.Queue[_Item]] = set()
        self._slow: set[asyncio.Queue[_Item]] = set()
        self._positions: dict[int, str] = {}
        self._reader: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    @property
    def subscribers(self) -> int:
        """Number of subscribers."""
        return len(self._subscribers)

    @property
    def is_closed(self) -> bool:
        """Return whether ``close`` was called."""
        return self._closed.is_set()

    async def subscribe(
        self, after: Mapping[int, str] | None = None, *, idle: timedelta
    ) -> AsyncGenerator[FedOutcome]:
        """Yield outcomes as they come, and positions alone at once and after each ``idle`` time.

        ``after`` has the entry ids after which to begin, of the latest 100,000 of each partition. A
        partition that it lacks was added later, and is read from its beginning. Without ``after``,
        the first outcome is the next to come. The iteration ends if the reader has failed or the
        feed is closed.

        Raises:
            Unavailable: Redis could not be reached for 10 s.
        """
        await self._start()
        queue: asyncio.Queue[_Item] = asyncio.Queue(_QUEUE)
        self._subscribers.add(queue)
        joined_at = dict(self._positions)
        positions = {**dict.fromkeys(joined_at, "0-0"), **after} if after else dict(joined_at)
        try:
            yield FedOutcome(dict(positions), None)
            if after is not None:
                async for fed in self._missed(positions, joined_at):
                    yield fed
            while not self._closed.is_set():
                if queue in self._slow and queue.empty():
                    self._slow.discard(queue)
                    try:
                        async for fed in self._missed(positions, dict(self._positions)):
                            yield fed
                    except Unavailable:
                        while not queue.empty():  # its outcomes are behind a gap
                            queue.get_nowait()
                        self._slow.add(queue)
                        await asyncio.sleep(_RETRY_SECONDS)
                    continue
                item = await self._next(queue, idle)
                if item is None:
                    if self._reader is None or self._reader.done():
                        return
                    yield FedOutcome(dict(positions), None)
                    continue
                partition, entry_id, outcome = item
                if order(entry_id) <= order(positions.get(partition, "0-0")):
                    continue
                positions[partition] = entry_id
                yield FedOutcome(dict(positions), outcome)
        finally:
            self._subscribers.discard(queue)
            self._slow.discard(queue)
            await self._stop_if_unused()

    def close(self) -> None:
        """End every subscription, at once for those that wait."""
        self._closed.set()

    async def _next(self, queue: asyncio.Queue[_Item], idle: timedelta) -> _Item | None:
        """Return the next item, or None if there is none in time or the feed is closed."""
        if not queue.empty():
            return queue.get_nowait()
        getting = asyncio.ensure_future(queue.get())
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait(
                {getting, closing},
                timeout=idle.total_seconds(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()
            closing.cancel()

    async def _missed(
        self, positions: dict[int, str], until: Mapping[int, str]
    ) -> AsyncIterator[FedOutcome]:
        """Yield the outcomes between the positions of a subscriber and those of the reader."""
        for partition in until:
            positions.setdefault(partition, "0-0")  # the number was raised
        while not self._closed.is_set():
            behind = {
                partition: entry_id
                for partition, entry_id in positions.items()
                if order(entry_id) < order(until.get(partition, "0-0"))
            }
            limit = _share(_READ_AGAIN_AT_ONCE, behind)
            entries = await self._outcomes.read_all(behind, limit=limit) if behind else {}
            if not entries:
                return
            for partition, page in entries.items():
                for entry in page:
                    positions[partition] = entry.entry_id
                    if entry.outcome is not None:
                        yield FedOutcome(dict(positions), entry.outcome)

    async def _start(self) -> None:
        if self._reader is not None:
            return
        now = f"{await self._outcomes.clock()}-0"
        if self._reader is None:
            self._positions = dict.fromkeys(range(self._outcomes.partitions), now)
            self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            for partition in range(self._outcomes.partitions):
                self._positions.setdefault(partition, "0-0")  # the number was raised
            try:
                limit = _share(_READ_AT_ONCE, self._positions)
                pages = await self._outcomes.read_all(
                    self._positions, limit=limit, block=LONGEST_BLOCK
                )
            except Unavailable:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            for partition, page in pages.items():
                for entry in page:
                    self._positions[partition] = entry.entry_id
                    if entry.outcome is not None:
                        self._send((partition, entry.entry_id, entry.outcome))
            await asyncio.sleep(0)  # subscribers have a turn, also if more outcomes are there

    def _send(self, item: _Item) -> None:
        for queue in self._subscribers - self._slow:
            try:
                queue.put_nowait(item)
            except asyncio.QueueFull:
                self._slow.add(queue)

    async def _stop_if_unused(self) -> None:
        reader = self._reader
        if self._subscribers or reader is None:
            return
        self._reader = None
        reader.cancel()
        with contextlib.suppress(asyncio.CancelledError, HeadraceError):
            await reader


def _share(total: int, partitions: Mapping[int, str]) -> int:
    """Return how many outcomes of each partition may be read, so that all have ``total``."""
    return max(1, total // max(1, len(partitions)))
