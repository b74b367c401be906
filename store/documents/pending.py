"""Pending chunks, which have no vector yet, by document; and chunks that a model rejects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

import asyncpg

from events.names import LogPosition
from store.documents import chunks, costs, ledger
from store.documents.costs import Usage
from store.generations.catalog import Generation, Models, Projects, enter_live
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.search.due_projects import overdue_projects, waiting_projects
from store.types import Vector

__all__ = [
    "Counts",
    "FormerlyMissing",
    "Missing",
    "PendingDocument",
    "PendingText",
    "PendingVectors",
    "RefusedChunk",
    "count",
    "documents",
    "lock",
    "note",
    "refused",
]

_QUERIES = named("pending")

_PAGE = 1_000
_CHOSEN = "(p.position, p.partition) in (select * from unnest($3::bigint[], $4::smallint[]))"
_ANY = "cardinality($3::bigint[]) + cardinality($4::smallint[]) = 0"


@dataclass(frozen=True, slots=True)
class Missing:
    """Vectors that one document lacks.

    ``since``: position of the oldest change of the document whose vectors were never complete.
    ``headers``: by chunk id, the header that is embedded before the chunk's text.
    """

    document_id: int
    log_position: LogPosition
    since: int
    model_id: int
    headers: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class PendingText:
    """A pending chunk. ``text`` None: the chunk is deleted. ``cached``: its vector is cached."""

    log_position: LogPosition
    document_id: int
    chunk_id: int
    model: str
    content_hash: bytes
    text: str | None
    cached: bool


@dataclass(frozen=True, slots=True)
class PendingDocument:
    """A document with pending chunks; ``agent`` is '' for a shared one.

    ``event_id`` is that of its change, or '' if the ledger lacks it.
    """

    event_id: str
    published_at: datetime
    agent: str
    uri: str
    position: int
    partition: int
    chunks: int


@dataclass(frozen=True, slots=True)
class RefusedChunk:
    """A chunk whose text its model rejects."""

    agent: str
    uri: str
    ordinal: int
    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of chunks of a generation: all, pending ones, and those that never get a vector."""

    chunks: int
    pending: int
    refused: int


@dataclass(frozen=True, slots=True)
class FormerlyMissing:
    """Vectors that a document lacked before a write: chunk ids, and since which position."""

    chunk_ids: Collection[int]
    since: int


async def lock(
    connection: asyncpg.Connection, generation_id: int, document_ids: Sequence[int]
) -> dict[int, FormerlyMissing]:
    """Lock the records of missing vectors for the transaction; return them by document id."""
    rows = await connection.fetch(_QUERIES["lock_pending"], generation_id, document_ids)
    return {
        row["document_id"]: FormerlyMissing(frozenset(row["chunk_ids"]), row["since_position"])
        for row in rows
    }


async def note(
    connection: asyncpg.Connection,
    generation_id: int,
    agent: str,
    missing: Sequence[Missing],
    former: Collection[int],
) -> None:
    """Replace the records of missing vectors. ``former``: ids of documents that have a record."""
    if former:
        await connection.execute(_QUERIES["forget_pending"], generation_id, list(former))
    if not missing:
        return
    ends = list(accumulate(len(lack.headers) for lack in missing))
    rows = [
        (
            *(lack.document_id, *lack.log_position, lack.since, lack.model_id),
            *(end - len(lack.headers) + 1, end),
        )
        for lack, end in zip(missing, ends, strict=True)
    ]
    await connection.execute(
        _QUERIES["note_pending"],
        generation_id,
        agent,
        *(list(column) for column in zip(*rows, strict=True)),
        [chunk_id for lack in missing for chunk_id in lack.headers],
        [header for lack in missing for header in lack.headers.values()],
    )


def _pending_text(row: asyncpg.Record) -> PendingText:
    content, header = row["content"], row["header"]
    return PendingText(
        log_position=LogPosition(row["position"], row["partition"]),
        document_id=row["document_id"],
        chunk_id=row["chunk_id"],
        model=row["model"],
        content_hash=row["content_hash"] or b"",
        text=f"{header}\n{content}" if header and content is not None else content,
        cached=row["cached"],
    )


async def documents(
    connection: asyncpg.Connection, generation: Generation, limit: int | None = None
) -> list[PendingDocument]:
    """The first ``limit`` documents (None: all) with pending chunks, oldest first."""
    query = _QUERIES["pending_documents"]
    rows = await connection.fetch(query, generation.id, generation.project_id, limit)
    return [PendingDocument(**row) for row in rows]


async def refused(connection: asyncpg.Connection, generation_id: int) -> list[RefusedChunk]:
    """Every chunk whose text a model rejects."""
    rows = await connection.fetch(_QUERIES["refused_chunks"], generation_id)
    return [RefusedChunk(**row) for row in rows]


async def count(connection: asyncpg.Connection, generation_id: int) -> Counts:
    """Count the chunks of a generation, in the connection's scope."""
    row = await connection.fetchrow(_QUERIES["count_all"], generation_id)
    return Counts(**row)


class PendingVectors:
    """Reads the texts of pending chunks, and writes their vectors.

    Every method raises ``Unavailable`` if Postgres cannot be reached.
    """

    def __init__(self, database: Database, projects: Projects) -> None:
        self._database = database
        self._projects = projects
        self._models = Models(database)

    async def texts(
        self,
        project: str,
        generation_id: int,
        log_positions: Collection[LogPosition] | None,
        limit: int,
        without: Collection[str] = (),
    ) -> list[PendingText]:
        """The first ``limit`` pending chunks, in log order, of documents that some changes wrote.

        ``log_positions``: those of the changes, or None for every document. ``without``: models to
        exclude. Returns an empty list if the project or the generation no longer exists.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return []
        async with self._database.scope(project_id, EVERY_AGENT, generation_id) as connection:
            if log_positions is None:
                await connection.execute(_QUERIES["read_in_order"])
            rows = await connection.fetch(
                _QUERIES["pending_texts"].format(chosen=_ANY if log_positions is None else _CHOSEN),
                generation_id,
                project_id,
                [position for position, _ in log_positions or ()],
                [partition for _, partition in log_positions or ()],
                limit,
                list(without),
            )
        return [_pending_text(row) for row in rows]

    async def remember(
        self,
        project: str,
        model: str,
        vectors: Mapping[bytes, Vector],
        usages: Mapping[str, Usage] = {},
    ) -> None:
        """Store vectors in the project's cache, by content hash, and their cost in the ledger.

        ``usages`` are by the token of the change that they were for.

        Raises:
            ConfigurationError: a vector's width is not that of its model.
        """
        project_id = await self._projects.find(project)
        if project_id is None or not vectors:
            return
        model_id = await self._models.ensure(model, len(next(iter(vectors.values()))))
        async with self._database.scope(project_id) as connection:
            await chunks.cache_vectors(connection, project_id, model_id, vectors)
            if usages:
                await costs.add(connection, project_id, model, "embedding", usages)

    async def complete(
        self,
        project: str,
        generation_id: int,
        texts: Sequence[PendingText],
        refusals: Mapping[int, str],
        costs: Mapping[LogPosition, tuple[float, float]] = {},
    ) -> int:
        """Give chunks the cached vectors of their texts; ``refusals``: reasons by chunk id.

        Only rows that still exist are changed. A chunk whose text is not in the cache stays
        pending; returns the number of these. ``costs``: tokens and US dollars by change, counted if
        it belongs to a batch.
        """
        project_id = await self._projects.find(project)
        if project_id is None or not texts:
            return 0
        document_ids = sorted({text.document_id for text in texts})
        async with self._database.scope(project_id, EVERY_AGENT, generation_id) as connection:
            await lock(connection, generation_id, document_ids)
            wanted = [text.chunk_id for text in texts if text.chunk_id not in refusals]
            done = await chunks.add_cached(connection, project_id, generation_id, wanted)
            if refusals:
                await connection.execute(
                    _QUERIES["refuse"], generation_id, list(refusals), list(refusals.values())
                )
            gone = {text.chunk_id for text in texts if text.text is None}
            settled = [*done, *refusals, *gone]
            await connection.execute(
                _QUERIES["remove_pending"], generation_id, document_ids, settled
            )
            if costs:
                await ledger.add_costs(connection, project_id, generation_id, costs)
        return len({text.chunk_id for text in texts}.difference(settled))

    async def refuse(
        self, project: str, generation_id: int, log_position: LogPosition, reason: str
    ) -> int:
        """Record the pending chunks of a change as refused; return their number.

        Chunks whose vector is cached get it instead.
        """
        refused = 0
        while waiting := await self.texts(project, generation_id, [log_position], _PAGE):
            refusals = {
                text.chunk_id: reason
                for text in waiting
                if text.text is not None and not text.cached
            }
            await self.complete(project, generation_id, waiting, refusals)
            refused += len(refusals)
        return refused

    async def is_waiting_for(self, project: str, log_position: LogPosition) -> bool:
        """Return whether a change, or a newer one of its document, has pending chunks."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return False
        async with self._live(project_id) as (connection, generation):
            query = _QUERIES["is_waiting_for"]
            return bool(await connection.fetchval(query, generation.id, *log_position))

    async def counts(self, project: str) -> Counts:
        """Count the chunks of the project's live generation, private ones included."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return Counts(0, 0, 0)
        async with self._live(project_id) as (connection, generation):
            return await count(connection, generation.id)

    async def counts_at(
        self, project: str, log_positions: Collection[LogPosition]
    ) -> tuple[Generation | None, dict[LogPosition, int]]:
        """The live generation, and the number of its pending chunks by the change that wrote them.

        Changes without pending chunks are absent.
        """
        project_id = await self._projects.find(project)
        if project_id is None:
            return None, {}
        async with self._live(project_id) as (connection, generation):
            return generation, await _count_at(connection, generation, log_positions)

    async def count(self, generation: Generation) -> int:
        """Count the pending chunks of a generation, private ones included."""
        async with self._scope(generation) as connection:
            return int(await connection.fetchval(_QUERIES["count_pending"], generation.id))

    async def waiting(self, generation: Generation, limit: int | None) -> list[PendingDocument]:
        """The first ``limit`` documents (None: all) with pending chunks, oldest first."""
        async with self._scope(generation) as connection:
            return await documents(connection, generation, limit)

    async def are_any(self) -> bool:
        """Return whether the live generation of any project has pending chunks."""
        return bool(await waiting_projects(self._database))

    async def overdue(
        self, older_than_s: float, limit: int
    ) -> dict[str, tuple[Generation, list[PendingDocument]]]:
        """Documents of live generations that were pending for ``older_than_s`` seconds, by project.

        Each document is returned to one caller only, until the same time has passed again.
        """
        overdue: dict[str, tuple[Generation, list[PendingDocument]]] = {}
        late = await overdue_projects(self._database, timedelta(seconds=older_than_s))
        projects = await self._projects.all() if late else {}
        for project, project_id in projects.items():
            if project_id not in late:
                continue
            async with self._live(project_id) as (connection, generation):
                rows = await connection.fetch(
                    _QUERIES["claim_overdue"], generation.id, project_id, older_than_s, limit
                )
            if rows:
                overdue[project] = generation, [PendingDocument(**row) for row in rows]
        return overdue

    def _scope(self, generation: Generation) -> AbstractAsyncContextManager[asyncpg.Connection]:
        return self._database.scope(generation.project_id, EVERY_AGENT, generation.id)

    @asynccontextmanager
    async def _live(self, project_id: int) -> AsyncIterator[tuple[asyncpg.Connection, Generation]]:
        """Begin a transaction in the scope of a project's live generation."""
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            yield connection, await enter_live(connection, project_id)


async def _count_at(
    connection: asyncpg.Connection, generation: Generation, log_positions: Collection[LogPosition]
) -> dict[LogPosition, int]:
    rows = await connection.fetch(
        _QUERIES["pending_at"],
        generation.id,
        [position for position, _ in log_positions],
        [partition for _, partition in log_positions],
    )
    return {LogPosition(row["position"], row["partition"]): row["chunks"] for row in rows}
