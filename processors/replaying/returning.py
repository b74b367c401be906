"""Switch to a former generation: a chosen one, or the one that was live before."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from processors.replaying.beginning import live_generation
from processors.replaying.building import Builder, Progress
from processors.replaying.catching_up import CatchUp
from processors.replaying.folding import Fold
from processors.replaying.opening import Tools, project_log, request_vectors, workshop
from processors.replaying.switching import make_live
from runtime.errors import UsageError
from store.generations import Generation
from store.replay_lock import replay_lock

__all__ = ["Returned", "find_generation", "generation_before", "return_to"]


@dataclass(frozen=True, slots=True)
class Returned:
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


async def find_generation(tools: Tools, generation_id: int) -> tuple[str, Generation]:
    """Find a generation of any project; return the project's name and the generation.

    Raises:
        UsageError: no generation has this id.
    """
    for project in sorted(await tools.projects.all()):
        for generation in await tools.store.generations(project):
            if generation.id == generation_id:
                return project, generation
    raise UsageError(f"there is no generation {generation_id} (`headrace replay list` lists all)")


async def generation_before(tools: Tools, project: str) -> Generation:
    """The generation that was live before the current one.

    Raises:
        UsageError: there is no former generation, or no such project.
    """
    await live_generation(tools, project)
    former = [
        generation
        for generation in await tools.store.generations(project)
        if generation.state == "former"
    ]
    if not former:
        raise UsageError(f"{project} has no former generation to go back to")
    return max(
        former,
        key=lambda generation: (generation.switched_at or generation.created_at, generation.id),
    )


async def return_to(tools: Tools, project: str, chosen: Generation, progress: Progress) -> Returned:
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
        _, chosen = await find_generation(tools, chosen.id)
        _check(chosen)
        shop = workshop(tools, project)
        builder = Builder(project, chosen, {}, shop, in_bulk=False, guard=lock.check)
        fold = Fold(await tools.standings.rejected(live.project_id))
        catch_up = CatchUp(live, project_log(tools, project), fold, tools.standings, builder)
        await make_live(tools.database, catch_up, lock, progress)
        await request_vectors(tools, project, chosen)
    seconds = perf_counter() - begin
    return Returned(project, chosen.id, live.id, len(builder.stored), seconds)


def _check(chosen: Generation) -> None:
    reasons = {
        "live": "is live already",
        "building": "is half built: `headrace replay` with the options of that replay finishes it",
        "dropping": "is being dropped",
    }
    if chosen.state != "former":
        raise UsageError(f"generation {chosen.id} {reasons[chosen.state]}")
