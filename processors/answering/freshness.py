"""Freshness of answers: waits for ``min_event``, and reads the watermark before the search."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import monotonic

from events.models import Query
from events.names import LogPosition, position_at
from runtime import metrics
from runtime.errors import WorkerEnding
from runtime.lifespan import wait_or_stop
from runtime.traces import staged
from store.documents.pending import PendingVectors
from store.documents.watermarks import ReadWatermark
from store.store import Change, Store

__all__ = ["Freshness", "FreshnessSnapshot"]

FIRST_POLL_SECONDS = 0.004
LONGEST_POLL_SECONDS = 0.1
WATERMARK_AGE_SECONDS = 0.1

_NEVER_EXPIRED = timedelta(hours=12)
"""The ledger has younger changes, even if clocks differ: it keeps them for a day."""


@dataclass(frozen=True)
class FreshnessSnapshot:
    """Applied positions when the search began; ``stale`` if ``min_event`` was not applied."""

    watermark: dict[str, str]
    stale: bool


class Freshness:
    """Checks one event in the ledger, and reads the watermark: see ``store.documents.watermarks``.

    At most ``max_waiting`` questions wait at once. A further one is answered immediately and
    marked as stale, so that waiting questions never block all others. Once ``ending`` is set,
    questions stop waiting.
    """

    def __init__(
        self,
        store: Store,
        pending: PendingVectors,
        read_watermark: ReadWatermark,
        max_waiting: int = 48,
        ending: asyncio.Event | None = None,
    ) -> None:
        self._store = store
        self._pending = pending
        self._free_slots = max_waiting
        self._ending = ending or asyncio.Event()
        self._read_watermark = read_watermark
        self._watermark: dict[str, str] = {}
        self._read_at = -WATERMARK_AGE_SECONDS
        self._read_lock = asyncio.Lock()

    @staged("wait")
    async def wait(self, query: Query) -> FreshnessSnapshot:
        """Wait until ``min_event`` is applied, with its vectors if the query asks for them.

        It waits for ``max_wait_ms`` at most.

        The watermark is read before the search, and at most 0.1 s old: it never claims too much.

        Raises:
            WorkerEnding: this process is shutting down, and the change is not applied yet.
            Unavailable: Postgres or Redis cannot be reached.
        """
        stale = query.min_event is not None and not await self._reached(query)
        return FreshnessSnapshot(await self._current_watermark(), stale)

    async def _reached(self, query: Query) -> bool:
        assert query.min_event is not None
        position = LogPosition.from_token(query.min_event)
        key = query.project, position
        vectors = bool(query.vectors)
        if await self._is_applied(key, vectors=vectors):
            return True
        if not self._free_slots:
            metrics.QUESTION_WAITS_REFUSED.inc()
            return False
        self._free_slots -= 1
        try:
            longest_wait = timedelta(milliseconds=query.max_wait_ms)
            return await self._poll(key, longest_wait, vectors=vectors)
        finally:
            self._free_slots += 1

    async def _is_applied(self, key: Change, *, vectors: bool) -> bool:
        """Return whether the change is applied; with ``vectors``, no chunk may lack its vector."""
        if not await self._store.handled([key]) and not await self._has_expired(key):
            return False
        if not vectors:
            return True
        return not await self._pending.is_waiting_for(*key)

    async def _has_expired(self, key: Change) -> bool:
        """Return whether the ledger entry of the change has expired."""
        if key[1].position >= position_at(datetime.now(UTC) - _NEVER_EXPIRED):
            return False
        return await self._store.has_expired(*key)

    async def _poll(self, key: Change, longest_wait: timedelta, *, vectors: bool) -> bool:
        deadline = monotonic() + longest_wait.total_seconds()
        pause = FIRST_POLL_SECONDS
        while monotonic() + pause <= deadline:
            if await wait_or_stop(self._ending, timedelta(seconds=pause)):
                raise WorkerEnding(
                    "this worker is shutting down, and another one answers the question"
                )
            if await self._is_applied(key, vectors=vectors):
                return True
            pause = min(pause * 1.5, LONGEST_POLL_SECONDS)
        return False

    async def _current_watermark(self) -> dict[str, str]:
        async with self._read_lock:
            if monotonic() - self._read_at > WATERMARK_AGE_SECONDS:
                started = monotonic()
                self._watermark = dict(await self._read_watermark())
                self._read_at = started
        return self._watermark
