"""The write side of the store, used by the pipelines."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import structlog

from events.models import ContentReference, Problem
from events.names import LogPosition
from runtime.errors import Unavailable, UnsupportedContent
from runtime.intervals import Backoff
from store.documents import chunks, contents, fence, ledger
from store.documents.transaction import uris_of, write_batch
from store.generations import catalog
from store.generations.catalog import Generation, Models, ProjectGone, Projects, Recipe
from store.generations.switch import GenerationMoved
from store.postgres.connection import WriteConflict
from store.postgres.pool import EVERY_AGENT, Database
from store.sources import Sources
from store.types import Applied, DocumentWrite, Vector
from store.views import statistics
from store.views.batches import Batches
from store.views.statistics import ProjectStatistics

__all__ = ["Change", "Store"]

log = structlog.get_logger(__name__)

Change = tuple[str, LogPosition]
"""Project and log position of a change."""

_MAX_TRIES = 6
_BACKOFF = Backoff(timedelta(milliseconds=10), timedelta(seconds=1))
_SHARED_LOCK_TIMEOUT = "500ms"
"""Longest wait for a lock of one project, since the other projects of the transaction wait too."""


class Store:
    """All operations that change the index.

    Every method raises ``Unavailable`` if Postgres cannot be reached, and ``ConfigurationError`` if
    its schema is not the expected one; nothing is written in these cases.

    ``recipe``: recipe of a new project's first generation.
    """

    def __init__(self, database: Database, recipe: Recipe) -> None:
        self._database = database
        self._projects = Projects(database, recipe)
        self._models = Models(database)
        self.sources = Sources(database, self._projects)
        self.batches = Batches(database, self._projects)

    async def has_project(self, project: str) -> bool:
        """Return whether a project of this name exists."""
        return await self._projects.find(project) is not None

    async def projects(self) -> list[str]:
        """Names of all projects, sorted."""
        return sorted(await self._projects.all())

    async def generation(self, project: str) -> Generation:
        """The live generation; creates the project if it does not exist."""
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            return await catalog.live(connection, project_id)

    async def live_generations(self, projects: Collection[str]) -> dict[str, Generation]:
        """The live generation of each project; creates the projects that do not exist.

        Raises:
            ProjectGone: a project was deleted.
        """
        ids = await self._projects.ensure_all(projects)
        async with self._database.connection() as connection:
            live = await catalog.live_generations(connection, ids.values())
        if len(live) < len(ids):
            raise ProjectGone("a project was just deleted", "try again")
        return {name: live[project_id] for name, project_id in ids.items()}

    async def live(self, project: str) -> Generation | None:
        """The live generation. Returns None if the project does not exist."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return None
        async with self._database.scope(project_id) as connection:
            return await catalog.live(connection, project_id)

    async def generations(self, project: str) -> list[Generation]:
        """All generations of a project, oldest first; empty if the project is unknown."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return []
        async with self._database.scope(project_id) as connection:
            return await catalog.listed(connection, project_id)

    async def model_width(self, model: str) -> int | None:
        """Width of the vectors stored for a model. Returns None if there are none."""
        return await self._models.width(model)

    async def known_vectors(
        self, project: str, model: str, hashes: Sequence[bytes]
    ) -> dict[bytes, Vector]:
        """Cached vectors of texts, by content hash; texts without one are absent."""
        project_id = await self._projects.find(project)
        if project_id is None or not hashes:
            return {}
        async with self._database.scope(project_id) as connection:
            return await chunks.cached(connection, project_id, model, hashes)

    async def known_hashes(self, project: str, model: str, hashes: Sequence[bytes]) -> set[bytes]:
        """Return the content hashes whose vectors are cached."""
        project_id = await self._projects.find(project)
        if project_id is None or not hashes:
            return set()
        async with self._database.scope(project_id) as connection:
            return await chunks.known_hashes(connection, project_id, model, hashes)

    async def apply(
        self, writes: Sequence[DocumentWrite], *, may_be_late: bool = True
    ) -> list[Applied]:
        """Apply changes to the live generations; return the results in the order of ``writes``.

        Each project and agent gets a transaction. A change is completely visible when this returns.
        A change has no effect if it is older than what is stored, or if it is of one source and its
        document exists and belongs to another.

        Raises:
            LateChanges: changes are older than what is stored, and ``may_be_late`` is false. As
                with ``GenerationMoved``, other changes may already be applied.
            ConfigurationError: a vector's width is not that of its model.
            GenerationMoved: a project was switched after a change was prepared for it. Changes of
                other projects and agents may already be applied; applying them again is harmless.
        """
        applied: dict[int, Applied] = {}
        for (project, agent), indexes in _by_owner(writes).items():
            results = await self._apply(
                project, agent, [writes[index] for index in indexes], may_be_late
            )
            applied.update(zip(indexes, results, strict=True))
        return [applied[index] for index in range(len(writes))]

    async def apply_together(self, writes: Sequence[DocumentWrite]) -> list[Applied] | None:
        """Apply changes of some projects as ``apply`` does, but in one transaction.

        Each statement sees one project, like all others. The changes of a project are of one agent.
        Returns None if nothing was written, because the transaction failed before its end; the
        changes of each project may then be applied alone. It also fails for a change that is older
        than what is stored, and where ``apply`` would wait for a lock.

        Raises:
            Unavailable: the connection was lost at the end of the transaction, so the changes may
                be applied.
        """
        applied: dict[int, Applied] = {}
        is_complete = False
        try:
            owned = _by_owner(writes)
            ids = await self._projects.ensure_all({project for project, _ in owned})
            models = await self._models_of(writes)
            async with self._database.transaction(_SHARED_LOCK_TIMEOUT) as connection:
                # always in this order, so that two writers cannot wait for each other
                for (project, agent), indexes in sorted(
                    owned.items(), key=lambda item: ids[item[0][0]]
                ):
                    part = [writes[index] for index in indexes]
                    results = await _write(
                        connection, ids[project], agent, models, part, may_be_late=False
                    )
                    applied.update(zip(indexes, results, strict=True))
                is_complete = True
        except Exception as error:  # the changes are applied alone
            if is_complete:
                raise
            log.info("write.divided", projects=len(owned), reason=repr(error))
            return None
        return [applied[index] for index in range(len(writes))]

    async def rebuild(
        self, generation: Generation, writes: Sequence[DocumentWrite], *, force: bool = False
    ) -> list[Applied]:
        """Write documents of one generation, live or not, as the log has them.

        Like ``apply``, but nothing is entered into the ledger, and a switch does not wait for it.
        ``force``: also write documents whose stored position is equal, replacing everything that
        is stored of them.

        Raises:
            ConfigurationError: a vector's width is not that of its model.
        """
        by_agent: defaultdict[str, list[int]] = defaultdict(list)
        for index, write in enumerate(writes):
            by_agent[write.agent or ""].append(index)
        applied: dict[int, Applied] = {}
        for agent, indexes in sorted(by_agent.items()):
            results = await self._rebuild(generation, agent, [writes[i] for i in indexes], force)
            applied.update(zip(indexes, results, strict=True))
        return [applied[index] for index in range(len(writes))]

    async def handled(
        self, changes: Sequence[Change], proofs: Mapping[Change, str] = {}
    ) -> set[Change]:
        """Return the changes that are applied or superseded.

        Rejected changes are not included, because they may be redriven. ``proofs``: SHA-256 (hex)
        of the events of some changes; such a change is not included if another event, which
        claimed its position, was applied instead.
        """
        ids = await self._projects.find_all({project for project, _ in changes})
        wanted = {
            (ids[project], log_position): (project, log_position)
            for project, log_position in changes
            if project in ids
        }
        if not wanted:
            return set()
        async with self._database.connection() as connection:
            done = await ledger.applied_of_projects(connection, list(wanted))
        return {
            wanted[key]
            for key, claimant in done.items()
            if claimant in (None, proofs.get(wanted[key], claimant))
        }

    async def has_expired(self, project: str, log_position: LogPosition) -> bool:
        """Return whether a change was handled so long ago that the ledger does not have it."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return False
        async with self._database.scope(project_id) as connection:
            return await ledger.has_expired(connection, project_id, log_position)

    async def handled_no_later(
        self, project: str, log_positions: Collection[LogPosition], mark: LogPosition
    ) -> set[LogPosition]:
        """Return the positions, all of the partition of ``mark``, handled no later than it."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return set()
        async with self._database.scope(project_id) as connection:
            return await ledger.handled_no_later(connection, project_id, log_positions, mark)

    async def reach(self, project: str) -> ledger.Reach:
        """Highest positions of a project that were handled."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return ledger.Reach({}, 0)
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            return await ledger.reach(connection, project_id)

    async def record_rejected(
        self,
        *,
        project: str,
        partition: int,
        position: int,
        event_id: str,
        problem: Problem,
        published_at: datetime | None = None,
        batch: str | None = None,
        agent: str | None = None,
        uri: str | None = None,
    ) -> None:
        """Record that a change was dead-lettered, and why; with what is known of the change.

        ``agent`` is '' for a shared document, and None if it is not known.
        """
        project_id = await self._projects.ensure(project)
        entry = ledger.Entry(
            LogPosition(position, partition),
            event_id,
            "rejected",
            published_at,
            problem.model_dump(mode="json"),
            batch,
            agent,
            uri,
        )
        async with self._database.scope(project_id) as connection:
            await ledger.record(connection, project_id, [entry])

    async def put(self, project: str, content: str | bytes) -> ContentReference:
        """Store content that is too large for an event.

        Raises:
            UnsupportedContent: the content is a text that Postgres cannot store.
            LimitExceeded: the content is too large.
        """
        project_id = await self._projects.ensure(project)
        async with self._database.scope(project_id) as connection:
            return await contents.put(connection, project_id, content)

    async def get_content(self, project: str, sha256: str) -> bytes:
        """Bytes of a content by its hash (hex), of a text in UTF-8.

        Raises:
            UnsupportedContent: the project has no content with this hash.
        """
        project_id = await self._projects.find(project)
        if project_id is not None:
            async with self._database.scope(project_id) as connection:
                stored = await contents.read(connection, project_id, [sha256])
            if stored:
                return stored[sha256]
        raise UnsupportedContent(f"no content is stored under {sha256}", "publish it again")

    async def statistics(self, project: str | None = None) -> list[ProjectStatistics]:
        """Counts and freshness of one project, or of all by name; empty if it is unknown."""
        ids = await self._projects.all()
        wanted = sorted(ids) if project is None else [project] if project in ids else []
        return [await self._measure(name, ids[name]) for name in wanted]

    async def _measure(self, project: str, project_id: int) -> ProjectStatistics:
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            return await statistics.measure(connection, project_id, project)

    async def _apply(
        self, project: str, agent: str, writes: Sequence[DocumentWrite], may_be_late: bool
    ) -> list[Applied]:
        project_id = await self._projects.ensure(project)
        models = await self._models_of(writes)

        async def attempt() -> list[Applied]:
            async with self._database.transaction() as connection:
                return await _write(
                    connection, project_id, agent, models, writes, may_be_late=may_be_late
                )

        return await _retry_conflicts(project, attempt)

    async def _rebuild(
        self, generation: Generation, agent: str, writes: Sequence[DocumentWrite], force: bool
    ) -> list[Applied]:
        models = await self._models_of(writes)
        scope = generation.project_id, agent, generation.id

        async def attempt() -> list[Applied]:
            async with self._database.scope(*scope) as connection:
                return await write_batch(
                    connection, generation, agent, models, writes, in_ledger=False, overwrite=force
                )

        return await _retry_conflicts(f"generation {generation.id}", attempt)

    async def _models_of(self, writes: Sequence[DocumentWrite]) -> dict[str, int]:
        widths = {
            (chunk.model, None if chunk.vector is None else len(chunk.vector))
            for write in writes
            for chunk in write.chunks
            if chunk.model
        }
        return {name: await self._models.ensure(name, width) for name, width in widths}


def _by_owner(writes: Sequence[DocumentWrite]) -> dict[tuple[str, str], list[int]]:
    """Indexes of changes by project and agent, sorted by these."""
    owned: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for index, write in enumerate(writes):
        owned[write.project, write.agent or ""].append(index)
    return dict(sorted(owned.items()))


async def _write(
    connection: asyncpg.Connection,
    project_id: int,
    agent: str,
    models: Mapping[str, int],
    writes: Sequence[DocumentWrite],
    *,
    may_be_late: bool,
) -> list[Applied]:
    """Apply changes of one project and agent to its live generation, in a transaction."""
    chunks = sum(len(write.chunks) for write in writes)
    entered = await catalog.enter_to_write(connection, project_id, agent, uris_of(writes), chunks)
    _check_prepared_for(entered.generation, writes)
    return await write_batch(
        connection,
        entered.generation,
        agent,
        models,
        writes,
        may_be_late=may_be_late,
        chunk_ids=entered.chunk_ids,
        before=fence.stored(entered.documents),
    )


def _check_prepared_for(live: Generation, writes: Sequence[DocumentWrite]) -> None:
    others = {write.generation_id for write in writes} - {0, live.id}
    if others:
        raise GenerationMoved(
            f"generation {min(others)} is not live any more ({live.id} is)",
            "prepare the changes again",
        )


async def _retry_conflicts(
    target: str, attempt: Callable[[], Coroutine[Any, Any, list[Applied]]]
) -> list[Applied]:
    """Run a transaction, and repeat it after conflicts with other writers."""
    for tried in range(_MAX_TRIES):
        try:
            return await attempt()
        except WriteConflict as error:
            log.info("write.conflict", target=target, tried=tried, error=str(error))
            await asyncio.sleep(_BACKOFF.delay(tried).total_seconds())
    raise Unavailable(f"write conflict on {target} after {_MAX_TRIES} attempts", "try again")
