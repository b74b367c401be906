"""Expiry of ledger entries, batches, tombstones, cached vectors and former generations.

One statement finds the projects that have something to expire; no others are visited. Rows are
deleted in small transactions, so an interrupted run loses nothing, and the next one continues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from events.names import position_at
from runtime.errors import UsageError
from runtime.settings import RetentionSettings
from store.documents import ledger
from store.generations import catalog
from store.generations.drop import drop_rows, forget
from store.generations.switch import exclusive
from store.postgres.connection import WriteConflict
from store.postgres.locks import replay_lock
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.purge.unused_vectors import expire_vectors
from store.search.vector_indexes import VectorIndexes

__all__ = ["Expiry"]

log = structlog.get_logger(__name__)

_QUERIES = named("expiry")
_BATCH_ROWS = 1_000
_CHECKS_PER_LIFETIME = 4
"""A vector is deleted at most a quarter of its time late."""


@dataclass(frozen=True, slots=True)
class _Due:
    """A project, and the kinds of its rows that have expired."""

    project_id: int
    has_ledger: bool
    has_generations: bool
    has_tombstones: bool
    has_vectors: bool


class Expiry:
    """Deletes what is older than the times of a setting.

    Args:
        database: opened with a worker's role, or an operator's.
        indexes: to drop the vector indexes of generations.
        retention: the times; a kind of rows whose time is None stays.
    """

    def __init__(
        self, database: Database, indexes: VectorIndexes, retention: RetentionSettings
    ) -> None:
        self._database = database
        self._indexes = indexes
        self._retention = retention

    async def run_once(self, delivered_from: datetime) -> Mapping[str, int]:
        """Visit every project that has rows to expire; return the numbers of deleted rows by kind.

        ``delivered_from``: time of the oldest change that may still be delivered from the streams.
        A failure in one project does not affect the others.

        Raises:
            Unavailable: Postgres cannot be reached.
            ExceptionGroup: the failures, raised after all projects were visited.
        """
        now = datetime.now(UTC)
        limits = _Limits.of(self._retention, now, delivered_from)
        total: Counter[str] = Counter()
        failures: list[Exception] = []
        for due in await self._find(limits):
            try:
                total.update(await self._expire(due, limits, now))
            except Exception as error:  # noqa: BLE001 - raised below
                failures.append(error)
        if failures:
            raise ExceptionGroup("expiry failed", failures)
        return total

    async def _find(self, limits: _Limits) -> list[_Due]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                _QUERIES["find_expired"],
                limits.handled_before,
                limits.replaced_before,
                limits.deleted_below,
                limits.checked_before,
            )
        return [_Due(**row) for row in rows]

    async def _expire(self, due: _Due, limits: _Limits, now: datetime) -> Counter[str]:
        expired: Counter[str] = Counter()
        if due.has_generations and limits.replaced_before is not None:
            expired["generations"] = await self._generations(due.project_id, limits.replaced_before)
        if due.has_ledger and limits.handled_before is not None:
            expired["ledger"] = await self._ledger(due.project_id, limits.handled_before)
            expired["batches"] = await self._batches(due.project_id, limits.handled_before)
        if due.has_tombstones and limits.deleted_below is not None:
            expired["tombstones"] = await self._tombstones(due.project_id, limits.deleted_below)
        if due.has_vectors and self._retention.vectors is not None:
            expired["vectors"] = await expire_vectors(
                self._database, due.project_id, now, now - self._retention.vectors
            )
        expired = +expired
        if expired:
            log.info("retention.expired", project_id=due.project_id, **expired)
        return expired

    async def _ledger(self, project_id: int, before: datetime) -> int:
        """Delete entries; the last one of each partition and lane stays, to compare streams with.

        A stream that was restored from an older state is recognised by it.
        """
        expired = 0
        deleted = _BATCH_ROWS
        while deleted == _BATCH_ROWS:
            async with self._database.scope(project_id, EVERY_AGENT) as connection:
                last = (await ledger.reach(connection, project_id)).handled
                deleted = await connection.fetchval(
                    _QUERIES["expire_ledger"],
                    project_id,
                    before,
                    _BATCH_ROWS,
                    [partition for partition, _ in last],
                    list(last.values()),
                )
            expired += deleted
        return expired

    async def _batches(self, project_id: int, before: datetime) -> int:
        async with self._database.scope(project_id) as connection:
            return int(await connection.fetchval(_QUERIES["expire_batches"], project_id, before))

    async def _tombstones(self, project_id: int, below: int) -> int:
        """Delete tombstones, in moments without writers.

        Nothing expires while there is another generation: a rollback to it needs them.
        """
        async with self._database.scope(project_id) as connection:
            live = await catalog.live(connection, project_id)
        expired = 0
        deleted = _BATCH_ROWS
        while deleted == _BATCH_ROWS:
            try:
                async with exclusive(self._database, project_id) as connection:
                    await connection.execute(_QUERIES["enter"], EVERY_AGENT, str(live.id))
                    deleted = await connection.fetchval(
                        _QUERIES["expire_tombstones"], below, _BATCH_ROWS
                    )
            except WriteConflict:
                return expired  # writers are busy; the next run continues
            expired += deleted
        return expired

    async def _generations(self, project_id: int, replaced_before: datetime) -> int:
        """Drop former generations, and finish interrupted drops; return their number.

        Nothing is dropped while the project is being replayed.
        """
        dropped = 0
        try:
            async with replay_lock(self._database, f"project {project_id}", project_id):
                async with self._database.scope(project_id) as connection:
                    for row in await connection.fetch(_QUERIES["replaced_generations"]):
                        await connection.fetchval(
                            _QUERIES["expire_generation"], row["id"], replaced_before
                        )
                async with self._database.scope(project_id) as connection:
                    generations = await catalog.listed(connection, project_id)
                for generation in generations:
                    if generation.state == "dropping":
                        await self._indexes.drop(project_id, generation.id)
                        async for _ in drop_rows(self._database, generation):
                            pass
                        await forget(self._database, generation)
                        dropped += 1
        except UsageError as error:
            log.info("retention.deferred", project_id=project_id, reason=str(error))
        return dropped


@dataclass(frozen=True, slots=True)
class _Limits:
    """Times and a position before which rows expire; None: they stay."""

    handled_before: datetime | None
    replaced_before: datetime | None
    deleted_below: int | None
    checked_before: datetime | None

    @classmethod
    def of(cls, retention: RetentionSettings, now: datetime, delivered_from: datetime) -> _Limits:
        handled = deleted = None
        if retention.ledger is not None:
            handled = min(now - retention.ledger, delivered_from)
        if retention.tombstones is not None:
            deleted = position_at(min(now - retention.tombstones, delivered_from))
        replaced = None if retention.generations is None else now - retention.generations
        checked = (
            None if retention.vectors is None else now - retention.vectors / _CHECKS_PER_LIFETIME
        )
        return cls(handled, replaced, deleted, checked)
