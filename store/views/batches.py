"""Batches: imports whose progress is counted in the ledger, so that no process has to remember it.

A publisher puts the id of a batch on its events, and may report here how many files it found,
skipped and published. A gateway, which many requests may use for one batch, records the changes
themselves until they are handled. Everything else is counted from the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import asyncpg

from events.names import LogPosition
from runtime.errors import NotFound
from store.generations.catalog import Projects, unknown_project
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = [
    "Batch",
    "BatchProgress",
    "Batches",
    "RejectedChange",
    "SkippedFiles",
    "batch_of",
    "skipped_files",
]

_QUERIES = named("batches")
_MOST_NAMED_FILES = 100
_PAGE = 50


@dataclass(frozen=True, slots=True)
class SkippedFiles:
    """Files that an import left out for one reason; ``files`` names the first 100 of them."""

    reason: str
    count: int
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Outcomes of the changes of a batch.

    ``published`` changes are in the log; ``waiting`` ones have no outcome yet. ``duplicate``
    changes had been published before, so they are not in the log again; only a sync counts them.
    ``per_s`` is the rate of the last minute, or of the whole batch if all changes have an outcome.
    ``seconds_left`` is None if nothing waits, or nothing had an outcome in the last minute.

    ``chunks_added``, ``tokens_embedded`` and ``cost_usd`` grow until all vectors exist.
    """

    published: int
    indexed: int
    superseded: int
    duplicate: int
    rejected: int
    waiting: int
    chunks_added: int
    tokens_embedded: int
    cost_usd: float
    per_s: float
    seconds_left: float | None
    began_at: datetime | None
    ended_at: datetime | None

    @property
    def handled(self) -> int:
        """Number of published changes that have an outcome."""
        return self.indexed + self.superseded + self.rejected


@dataclass(frozen=True, slots=True)
class RejectedChange:
    """A rejected change of a batch; ``uri`` is None if the event could not be read."""

    token: str
    event_id: str
    uri: str | None
    reason: str
    handled_at: datetime


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as its publisher reports it.

    ``found`` is None until the publisher has counted the files. ``ended_at`` is None while it
    publishes, and if it was killed.
    """

    id: str
    started_by: str
    found: int | None
    skipped: tuple[SkippedFiles, ...]
    published: int
    began_at: datetime
    ended_at: datetime | None

    @property
    def skipped_count(self) -> int:
        """Number of files that were left out."""
        return sum(reason.count for reason in self.skipped)


class Batches:
    """Writes and counts batches. Every method raises ``Unavailable`` if Postgres is unreachable.

    A publisher's role may write batches; an answerer's role may read them.
    """

    def __init__(self, database: Database, projects: Projects) -> None:
        self._database = database
        self._projects = projects

    async def begin(
        self, project: str, batch: str, *, source_id: str | None = None, started_by: str = ""
    ) -> None:
        """Record that a batch begins; an existing batch continues. Creates the project if needed.

        ``started_by`` names the user or the process.
        """
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            await connection.execute(_QUERIES["begin"], project_id, batch, source_id, started_by)
            if source_id is not None:
                await connection.execute(
                    _QUERIES["forget_former_files"], project_id, batch, source_id
                )

    async def update(
        self,
        project: str,
        batch: str,
        *,
        found: int | None = None,
        skipped: Iterable[SkippedFiles] | None = None,
        published: int = 0,
        duplicates: int = 0,
        ended: bool = False,
    ) -> None:
        """Add published changes and duplicates to a batch, and replace what else is given.

        Call it after the changes were published: if the caller is killed in between, the batch
        lacks their number until they have their outcomes.
        """
        project_id = await self._projects.ensure(project)
        kept = None if skipped is None else _kept(skipped)
        async with self._database.scope(project_id) as connection:
            await connection.execute(
                _QUERIES["update"],
                project_id,
                batch,
                found,
                kept,
                published,
                duplicates,
                ended,
            )

    async def add_changes(
        self, project: str, batch: str, tokens: Iterable[str], *, started_by: str
    ) -> None:
        """Record changes that were published in a batch; recording them again changes nothing.

        The first call begins the batch, and creates the project if needed. ``started_by`` names the
        caller of the gateway.

        Raises:
            MalformedEvent: a text is not a token.
        """
        positions = [LogPosition.from_token(token) for token in tokens]
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            await connection.execute(_QUERIES["begin_for_gateway"], project_id, batch, started_by)
            await connection.execute(
                _QUERIES["add_changes"],
                project_id,
                batch,
                [position.partition for position in positions],
                [position.position for position in positions],
            )

    async def forget_handled_changes(self, project: str) -> int:
        """Delete the records of changes that the ledger has; return their number.

        A worker's role may call it.

        Raises:
            UnknownProject: the project does not exist.
        """
        project_id = await self._require(project)
        async with self._database.scope(project_id) as connection:
            return int(await connection.fetchval(_QUERIES["forget_handled_changes"], project_id))

    async def refresh(
        self,
        project: str,
        batch: str,
        *,
        source_id: str,
        started_by: str,
        found: int,
        skipped: Iterable[SkippedFiles],
    ) -> str:
        """Record a sync that had nothing to publish, in the latest batch of its source.

        Returns the id of that batch: ``batch``, if the source has none yet.
        """
        project_id = await self._projects.ensure(project)
        values = project_id, batch, source_id, started_by, found, _kept(skipped)
        async with self._database.scope(project_id) as connection:
            return str(await connection.fetchval(_QUERIES["refresh"], *values))

    async def progress(self, project: str, batch: str) -> BatchProgress:
        """Count the outcomes of a batch. Its publisher need not have reported it.

        Raises:
            UnknownProject: the project does not exist.
            NotFound: the project has no such batch.
        """
        project_id = await self._require(project)
        async with self._database.scope(project_id) as connection:
            row = await connection.fetchrow(_QUERIES["progress"], project_id, batch)
        if row is None:
            raise NotFound(
                f"{project} has no batch {batch[:64]!r}",
                "use the id that its changes carry; a batch exists from its first change on",
            )
        return _progress(row)

    async def rejected(
        self,
        project: str,
        batch: str,
        *,
        agent: str | None = None,
        after: str | None = None,
        limit: int = _PAGE,
    ) -> list[RejectedChange]:
        """Rejected changes of a batch, newest first: those of ``agent`` and of shared documents.

        ``after``: token of the last change of the page before.

        Raises:
            MalformedEvent: ``after`` is not a token.
            UnknownProject: the project does not exist.
        """
        project_id = await self._require(project)
        async with self._database.scope(project_id) as connection:
            rows = await connection.fetch(
                _QUERIES["rejected"],
                project_id,
                batch,
                agent or "",
                *(LogPosition(2**63 - 1, 0) if after is None else LogPosition.from_token(after)),
                limit,
            )
        return [_rejected(row) for row in rows]

    async def _require(self, project: str) -> int:
        project_id = await self._projects.find(project)
        if project_id is None:
            raise unknown_project(project)
        return project_id


def skipped_files(reasons: Mapping[str, str]) -> list[SkippedFiles]:
    """Group files by the reason why they were left out, given by path."""
    paths: dict[str, list[str]] = {}
    for path, reason in sorted(reasons.items()):
        paths.setdefault(reason, []).append(path)
    return [
        SkippedFiles(reason, len(files), tuple(files[:_MOST_NAMED_FILES]))
        for reason, files in sorted(paths.items())
    ]


def _kept(skipped: Iterable[SkippedFiles]) -> str:
    return json.dumps([asdict(files) for files in skipped])


def batch_of(row: Mapping[str, Any]) -> Batch:
    """Batch in a row of the table."""
    skipped = tuple(
        SkippedFiles(files["reason"], files["count"], tuple(files["files"]))
        for files in json.loads(row["skipped"])
    )
    return Batch(
        row["id"],
        row["started_by"],
        row["found"],
        skipped,
        row["published"],
        row["began_at"],
        row["ended_at"],
    )


def _progress(row: asyncpg.Record) -> BatchProgress:
    handled = row["indexed"] + row["superseded"] + row["rejected"]
    published = max(row["published"], handled)
    waiting = published - handled
    per_s = row["recent_per_s"] if waiting else row["overall_per_s"]
    return BatchProgress(
        published=published,
        indexed=row["indexed"],
        superseded=row["superseded"],
        duplicate=row["duplicates"],
        rejected=row["rejected"],
        waiting=waiting,
        chunks_added=row["chunks_added"],
        tokens_embedded=round(row["tokens_embedded"]),
        cost_usd=row["cost_usd"],
        per_s=per_s,
        seconds_left=waiting / per_s if waiting and per_s else None,
        began_at=row["began_at"],
        ended_at=row["ended_at"],
    )


def _rejected(row: Mapping[str, Any]) -> RejectedChange:
    return RejectedChange(
        LogPosition(row["position"], row["partition"]).token,
        row["event_id"],
        row["uri"],
        row["reason"] or "",
        row["handled_at"],
    )
