"""Generations of projects: list them, switch to a former one, and drop one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from processors.replay.builder import Builder, Progress
from processors.replay.catch_up import CatchUp, make_live
from processors.replay.fold import Fold
from processors.replay.project_log import ProjectLog
from processors.replay.start import live_generation
from processors.wiring.operator_tools import OperatorTools
from runtime import protocol_limits
from runtime.errors import UsageError
from runtime.failpoints import failpoint
from store.generations.catalog import Generation
from store.generations.drop import begin_drop, drop_rows, forget
from store.generations.inventory import Inventory, ListedGeneration, droppable_at
from store.postgres.locks import replay_lock
from store.postgres.pool import Database

__all__ = [
    "SwitchResult",
    "drop",
    "find_generation",
    "generation_before",
    "list_generations",
    "projects_of",
    "switch_to",
]

ShowDeleted = Callable[[int], None]
"""Called with the number of rows deleted so far."""


@dataclass(frozen=True, slots=True)
class SwitchResult:
    """Result of a switch. ``caught_up``: number of documents that had changed since."""

    project: str
    generation: int
    former: int
    caught_up: int
    seconds: float
    switched: bool = True

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"seconds": round(self.seconds, 3)}


async def find_generation(tools: OperatorTools, generation_id: int) -> tuple[str, Generation]:
    """Find a generation of any project; return the project's name and the generation.

    Raises:
        NotFound: no generation has this id.
    """
    return await Inventory(tools.database).find(generation_id)


async def generation_before(tools: OperatorTools, project: str) -> Generation:
    """The generation that was live before the current one.

    Raises:
        UsageError: there is no former generation, or no such project.
    """
    return await Inventory(tools.database).former(project)


async def switch_to(
    tools: OperatorTools, project: str, generation: Generation, progress: Progress
) -> SwitchResult:
    """Catch a former generation up with its own recipe, and make it live.

    Raises:
        UsageError: it is not a former generation, or the project is being replayed.
        NotSwitched: it can't be caught up.
        Unavailable: a server or a model is down; the live generation is unchanged.
    """
    begin = perf_counter()
    project_id = await tools.projects.require(project)
    async with replay_lock(tools.database, project, project_id) as lock:
        live = await live_generation(tools, project)
        _, generation = await find_generation(tools, generation.id)
        _check_switchable(generation)
        fold, log = Fold(), ProjectLog.of(project, tools)
        builder = Builder(project, generation, fold, log, tools, in_bulk=False, guard=lock.check)
        catch_up = CatchUp(live, log, fold, tools.document_positions, builder)
        await make_live(tools.database, catch_up, lock, progress)
        await tools.request_vectors(project, generation)
    seconds = perf_counter() - begin
    return SwitchResult(project, generation.id, live.id, fold.count_stored(), seconds)


async def drop(tools: OperatorTools, generation_id: int, progress: ShowDeleted) -> int:
    """Delete a generation with all its rows, in batches; return how many rows there were.

    An interrupted drop can be repeated.

    Raises:
        UsageError: the generation does not exist, is live, or may still be read by queries that
            began while it was; or the project is being replayed.
        Unavailable: Postgres can't be reached, or an index of the generation is being built.
    """
    project, _ = await find_generation(tools, generation_id)
    async with replay_lock(tools.database, project, await tools.projects.require(project)):
        _, generation = await find_generation(tools, generation_id)
        generations = await tools.store.generations(project)
        _check_droppable(generation, generations, datetime.now(UTC))
        if not await begin_drop(tools.database, generation):
            raise _live_error(generation)
        await tools.indexes.drop(generation.project_id, generation.id)
        return await _drop_rows(tools.database, generation, progress)


async def projects_of(tools: OperatorTools, project: str | None) -> list[str]:
    """The named project, or all projects if ``project`` is None.

    Raises:
        UsageError: no such project.
    """
    return sorted(await Inventory(tools.database).projects(project))


async def list_generations(tools: OperatorTools, project: str | None) -> list[ListedGeneration]:
    """List all generations of one project, or of all projects, oldest first.

    Raises:
        UsageError: no such project.
    """
    kept_for = tools.settings.retention.generations
    return [row.kept_for(kept_for) for row in await Inventory(tools.database).all(project)]


def _check_switchable(generation: Generation) -> None:
    reasons = {
        "live": ("is live already", ""),
        "building": ("is half built", "run `headrace replay` with its options to finish it"),
        "dropping": ("is being dropped", ""),
    }
    if generation.state != "former":
        state, remedy = reasons[generation.state]
        raise UsageError(f"generation {generation.id} {state}", remedy)


async def _drop_rows(database: Database, generation: Generation, progress: ShowDeleted) -> int:
    deleted = 0
    async for rows in drop_rows(database, generation):
        deleted += rows
        progress(deleted)
        failpoint("replay.dropping")
    await forget(database, generation)
    return deleted


def _check_droppable(
    generation: Generation, generations: Sequence[Generation], now: datetime
) -> None:
    if generation.state == "live":
        raise _live_error(generation)
    unread_at = droppable_at(generation, generations)
    if generation.state == "former" and unread_at is not None and unread_at > now:
        raise UsageError(
            f"generation {generation.id} may have answered until "
            f"{unread_at - protocol_limits.QUERY_DEADLINE:%H:%M:%S} UTC, "
            "and queries may still read it",
            f"drop it in {(unread_at - now).total_seconds():.0f} s",
        )


def _live_error(generation: Generation) -> UsageError:
    return UsageError(
        f"generation {generation.id} is live", "switch to another first (`headrace replay list`)"
    )
