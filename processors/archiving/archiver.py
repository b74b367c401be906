"""Copy every change from the streams to the archive: append → acknowledge.

Only the worker that holds the lock archives. If it dies, its successor finds the in-flight entries
pending and archives them again: readers of the archive ignore a repeated log position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from time import monotonic

import structlog

from events.streams.changes import StreamedChange
from processors.admission import Admission, Decision
from processors.archiving.consumer import LogGroup, entry_ids_of, sort_out
from runtime import metrics
from runtime.errors import HeadraceError, SignatureRefused
from runtime.intervals import Backoff, until_tick
from runtime.lifespan import wait_or_stop
from store.archive import Archive
from store.outbox import PostgresOutbox
from store.postgres.locks import HeldLock, archiver_lock
from store.postgres.pool import Database

__all__ = ["Archiver", "Intake"]

log = structlog.get_logger(__name__)

PATIENCE = timedelta(seconds=1)
"""Longest time for which changes are collected, so that files are few and large."""

_IDLE_AFTER = timedelta(seconds=10)
_IDLE_PAUSE = timedelta(seconds=4)
"""The archiver reads less often after a time without changes."""

_RIVAL_PAUSE = timedelta(seconds=2)
_BACKOFF = Backoff(timedelta(seconds=1), timedelta(seconds=30))


class Archiver:
    """The loop of the archiver.

    ``deployment`` is the stream prefix. ``is_active`` is true while this instance holds the lock.
    """

    def __init__(
        self,
        database: Database,
        deployment: str,
        group: LogGroup,
        archive: Archive,
        intake: Intake,
        *,
        patience: timedelta = PATIENCE,
    ) -> None:
        self._database = database
        self._deployment = deployment
        self._group = group
        self._archive = archive
        self._intake = intake
        self._patience = patience
        self._failures = 0
        self._left_pending = False
        self._has_folder = False
        self.is_active = False

    async def run(self, stop: asyncio.Event) -> None:
        """Archive until ``stop`` is set; failed changes stay pending and are retried."""
        while not stop.is_set():
            try:
                async with archiver_lock(self._database, self._deployment) as lock:
                    if lock is not None:
                        await self._serve(lock, stop)
            except Exception as error:  # noqa: BLE001 - a failing archive must not end the worker
                await self._wait_out(error, stop)
            else:
                await wait_or_stop(stop, _RIVAL_PAUSE)

    async def _serve(self, lock: HeldLock, stop: asyncio.Event) -> None:
        self.is_active = True
        try:
            self._has_folder = False
            await self._group.begin()
            is_last = False
            busy_at = monotonic()
            while not is_last:
                is_last = stop.is_set()  # one more batch: archive what arrived before the stop
                await lock.prove()
                is_full = await self.archive_batch()
                self._failures = 0
                if self._group.has_read:
                    busy_at = monotonic()
                if not is_full:
                    is_idle = monotonic() - busy_at >= _IDLE_AFTER.total_seconds()
                    pause = until_tick(_IDLE_PAUSE) if is_idle else self._patience
                    await wait_or_stop(stop, pause)
        finally:
            self.is_active = False

    async def archive_batch(self) -> bool:
        """Archive one batch; return whether more changes may be waiting already.

        Raises:
            Unavailable: Redis, Postgres or the archive's storage fails. The changes of the affected
                projects stay pending.
        """
        batch = await self._group.read()
        if batch.count:
            parts = await asyncio.to_thread(sort_out, batch)
            await self._group.acknowledge(parts.skipped)
            await self._adopt_all(parts.changes)
        if self._left_pending and not batch.is_full:
            self._group.reread_pending()
            self._left_pending = False
        return batch.is_full

    async def _adopt_all(self, changes: Mapping[str, Sequence[StreamedChange]]) -> None:
        """Archive admitted changes. Changes that the indexer has not decided yet stay pending.

        Raises the first failure, after the other projects.
        """
        if not changes:
            return
        if not self._has_folder:
            await self._archive.claim(self._deployment)
            self._has_folder = True
        decisions, failures = await self._intake.decide_all(changes)
        failures |= await self._archive.append_together(
            {
                project: [streamed.change for streamed in decision.admitted]
                for project, decision in decisions.items()
            }
        )
        archived = [decision for project, decision in decisions.items() if project not in failures]
        await self._group.acknowledge(
            entry_ids_of(change for done in archived for change in [*done.admitted, *done.refused])
        )
        metrics.CHANGES_ARCHIVED.inc(sum(len(decision.admitted) for decision in archived))
        self._left_pending |= any(decision.undecided for decision in archived)
        for failure in failures.values():
            raise failure

    async def _wait_out(self, error: Exception, stop: asyncio.Event) -> None:
        """Pause after a failure. The traceback is logged only for defects, not for outages."""
        metrics.ARCHIVE_FAILURES.inc()
        trace = None if isinstance(error, HeadraceError) else error
        log.error("archiver.failed", error=str(error) or repr(error), exc_info=trace)
        await wait_or_stop(stop, _BACKOFF.delay(self._failures))
        self._failures += 1


class Intake:
    """Admission of changes to the archive."""

    def __init__(self, admission: Admission, outbox: PostgresOutbox) -> None:
        self._admission = admission
        self._outbox = outbox

    async def decide_all(
        self, changes: Mapping[str, Sequence[StreamedChange]]
    ) -> tuple[dict[str, Decision], dict[str, Exception]]:
        """Judge changes by project; return decisions, and failures, by project.

        Raises:
            Unavailable: the keys of the projects can't be read.
        """
        await self._admission.load(changes)
        decisions: dict[str, Decision] = {}
        failures: dict[str, Exception] = {}
        for project, of_project in changes.items():
            try:
                decisions[project] = await self.decide(project, of_project)
            except Exception as error:  # noqa: BLE001 - the caller raises it
                failures[project] = error
        return decisions, failures

    async def decide(self, project: str, changes: Sequence[StreamedChange]) -> Decision:
        """Judge changes of one project and drop refused ones from the outbox.

        The outbox would publish them again otherwise.

        Raises:
            Unavailable: Postgres can't be reached.
        """
        decision = await self._admission.decide(project, changes)
        if decision.refused:
            metrics.CHANGES_NOT_ARCHIVED.inc(
                len(decision.refused), reason=SignatureRefused.__name__
            )
            await self._outbox.drop(
                project,
                [(change.raw, change.signature or b"") for change in decision.refused],
            )
        return decision
