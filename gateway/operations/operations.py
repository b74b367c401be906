"""Everything that an operator does to a deployment, for the gateway's routes and pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from redis.asyncio import Redis

from events.names import Names
from events.replays import ReplayState
from events.server.connection import check_server, connect
from events.streams.letter_selection import LetterCount, LetterFilter, LetterOutcome
from gateway.operations.history import History, HistoryPoint
from gateway.operations.letters import Letter, Letters
from gateway.operations.replays import Replays
from gateway.status.report import read_status
from processors.doctor.checks.postgres_server import replica_conditions
from runtime.errors import ConfigurationError
from runtime.settings import Settings
from store.generations.evaluations import Evaluation, EvaluationRow, Evaluations
from store.generations.inventory import Inventory, ListedGeneration
from store.postgres.pool import Database
from store.postgres.roles import OPERATOR

__all__ = ["GenerationRow", "Operations", "ReplayPlan"]

_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class GenerationRow:
    """A generation as ``headrace replay list`` shows it, with the report of its replay.

    ``droppable_at``: time from which it can be dropped; None if it is live, or never was.
    """

    project: str
    id: int
    state: str
    model: str
    models: Mapping[str, str]
    chunking: str
    tokens: int
    scope: Mapping[str, Any]
    documents: int
    chunks: int
    created_at: datetime
    switched_at: datetime | None
    droppable_at: datetime | None
    report: Mapping[str, Any]

    @classmethod
    def of(cls, listed: ListedGeneration) -> Self:
        """Create from a listed generation."""
        generation, recipe = listed.generation, listed.generation.recipe
        return cls(
            project=listed.project,
            id=generation.id,
            state=generation.state,
            model=recipe.model,
            models=dict(recipe.models),
            chunking=recipe.chunking,
            tokens=recipe.tokens,
            scope=dict(generation.scope),
            documents=listed.documents,
            chunks=listed.chunks,
            created_at=generation.created_at,
            switched_at=generation.switched_at,
            droppable_at=listed.droppable_at,
            report=dict(generation.detail),
        )


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """Estimate of a replay; ``cost_usd`` is None if the price of a model is unknown."""

    project: str
    documents: int
    chunks: int
    reused: int
    embedded: int
    tokens: int
    cost_usd: float | None
    seconds: float
    refused: int

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Self:
        """Create from the result of a dry run."""
        return cls(**{name: result[name] for name in cls.__slots__})


class Operations:
    """Operations of a process that has an operator's credentials.

    Every method raises Unavailable if Redis or Postgres can't be reached.
    """

    def __init__(self, settings: Settings, redis: Redis, names: Names, database: Database) -> None:
        self._settings = settings
        self._redis = redis
        self._names = names
        self._database = database
        self._inventory = Inventory(database)
        self._letters = Letters(redis, names)
        self._evaluations = Evaluations(database)
        self._history = History(redis, names, database)
        self._replays = Replays(settings, redis, names, self._inventory)

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, names: Names) -> AsyncIterator[Self]:
        """Connect as an operator; at the end, stop the replays that were started here.

        Raises:
            ConfigurationError: a server is not configured, or refuses an operator's role.
            Unavailable: Redis or Postgres can't be reached.
        """
        if not settings.database_url or not settings.redis_url:
            raise ConfigurationError(
                "an operator needs Redis and Postgres",
                "set HEADRACE_REDIS_URL and HEADRACE_DATABASE_URL",
            )
        async with AsyncExitStack() as stack:
            redis = connect(settings.redis_url)
            stack.push_async_callback(redis.aclose)
            await check_server(redis)
            database = await Database.open(
                settings.database_url, role=OPERATOR, max_size=_CONNECTIONS
            )
            stack.push_async_callback(database.close)
            operations = cls(settings, redis, names, database)
            stack.push_async_callback(operations._replays.close)
            sampling = asyncio.create_task(operations._history.run())
            stack.push_async_callback(_cancel, sampling)
            yield operations

    async def status(self) -> dict[str, Any]:
        """State of the deployment, as ``headrace status --json`` prints it."""
        report = await read_status(
            self._redis,
            self._database,
            self._names,
            self._settings.archive_location,
            servers="of the gateway",
            replica=await replica_conditions(
                self._settings.database_url, self._settings.read_database_url
            ),
        )
        return report.to_json()

    async def history(self, minutes: int = 120) -> list[HistoryPoint]:
        """Figures by minute, oldest first; of the last day at most."""
        return await self._history.read(minutes)

    async def dead_letters(
        self,
        *,
        topic: str | None = None,
        project: str | None = None,
        error: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> list[Letter]:
        """Dead letters, newest first; ``before`` is the id of the last one of the page before.

        Raises:
            UsageError: the topic does not exist, or ``before`` is not an id.
        """
        return await self._letters.page(LetterFilter(topic, project, error), before, limit)

    async def dead_letter_counts(self) -> list[LetterCount]:
        """Number of dead letters by topic, error and project, the largest first."""
        return await self._letters.counts()

    async def dead_letter(self, letter_id: str) -> Letter:
        """One dead letter.

        Raises:
            NotFound: it does not exist.
        """
        return await self._letters.find(letter_id)

    async def redrive(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: Mapping[str, str] | None = None,  # noqa: A002 - a name of the interface
        count: int | None = None,
    ) -> list[LetterOutcome]:
        """Redrive the letters named, or the ``count`` letters that match a filter.

        Letters that arrive after the count are not touched.

        Raises:
            UsageError: not exactly one of ids and filter is given, or a filter without a count.
            Conflict: the filter matches another number of letters; none is redriven.
        """
        return await self._letters.redrive(ids, filter, count)

    async def drop(
        self,
        ids: Sequence[str] | None = None,
        *,
        filter: Mapping[str, str] | None = None,  # noqa: A002 - a name of the interface
        count: int | None = None,
    ) -> list[LetterOutcome]:
        """Delete letters permanently; arguments and errors as of ``redrive``."""
        return await self._letters.drop(ids, filter, count)

    async def generations(self, project: str) -> list[GenerationRow]:
        """Generations of a project, oldest first.

        Raises:
            UnknownProject: no such project.
        """
        return [GenerationRow.of(row) for row in await self._inventory.all(project)]

    async def start_replay(
        self,
        project: str,
        *,
        model: str | None = None,
        chunking: str | None = None,
        since: str | None = None,
        kind: str | None = None,
        collection: str | None = None,
        gate: str | None = None,
        max_drop: float | None = None,
        dry_run: bool = False,
    ) -> ReplayState | ReplayPlan:
        """Start a replay, or estimate it; see ``headrace replay`` for the options.

        An estimate that takes long returns its state; the plan is then the result of that state.
        ``gate`` names a directory under ``gates`` in the home.

        Raises:
            UnknownProject: no such project.
            NotFound: no such gate.
            UsageError: the options of an estimate can't be used.
            Conflict: the project is being replayed.
        """
        scope = {
            "model": model,
            "chunking": chunking,
            "since": since,
            "kind": kind,
            "collection": collection,
        }
        if not dry_run:
            gating = {"gate": gate, "max_drop": max_drop}
            return await self._replays.start(project, scope | gating)
        state = await self._replays.plan(project, scope)
        return ReplayPlan.of(state.result) if state.has_ended and state.result else state

    async def replay(self, replay_id: str) -> ReplayState:
        """State of a replay, switch or drop, whichever process runs it.

        Raises:
            NotFound: there is none, or it is not kept any more.
        """
        return await self._replays.find(replay_id)

    async def replays(self) -> list[ReplayState]:
        """States of the last 50 replays, switches and drops, newest first."""
        return await self._replays.all()

    async def stop_replay(self, replay_id: str) -> ReplayState:
        """Stop a replay; what it has built is kept, and the live index is unchanged.

        Raises:
            NotFound: there is none.
        """
        return await self._replays.stop(replay_id)

    async def switch(self, project: str, generation: int) -> ReplayState:
        """Make a former generation live. A switch that takes long returns while it is running.

        Raises:
            UnknownProject, NotFound: no such project or generation.
            Conflict: it is not a former generation, or the project is being replayed.
        """
        return await self._replays.switch(project, generation)

    async def rollback(self, project: str) -> ReplayState:
        """Make the generation live that was live before; returns as ``switch`` does.

        Raises:
            UnknownProject: no such project.
            Conflict: there is no former generation, or the project is being replayed.
        """
        return await self._replays.rollback(project)

    async def drop_generation(self, project: str, generation: int) -> ReplayState:
        """Delete a generation that is not live; returns as ``switch`` does.

        Raises:
            UnknownProject, NotFound: no such project or generation.
            Conflict: it is live, queries may still read it, or the project is being replayed.
        """
        return await self._replays.drop(project, generation)

    async def evaluations(self, project: str) -> list[EvaluationRow]:
        """Saved evaluations of a project, newest first.

        Raises:
            UnknownProject: no such project.
        """
        return await self._evaluations.of(project)

    async def evaluation(self, evaluation_id: str) -> Evaluation:
        """One saved evaluation, with the scores of its questions.

        Raises:
            NotFound: it does not exist.
        """
        return await self._evaluations.find(evaluation_id)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
