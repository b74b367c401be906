"""The switch: the last few changes, and another generation is live, all in one transaction."""

from __future__ import annotations

import asyncio

import structlog

from processors.replaying.building import Progress
from processors.replaying.catching_up import CatchUp
from runtime.errors import Unavailable
from runtime.kill_points import kill_point
from store import generations
from store.connecting import WriteConflict
from store.database import Database
from store.generations import Generation
from store.replay_lock import ReplayLock
from store.switching import exclusive, switch

__all__ = ["make_live"]

log = structlog.get_logger(__name__)

MOST_TRIES = 120
PAUSE_SECONDS = 0.25
LIMIT_SECONDS = 10.0
"""No writer waits for longer; the database ends a silent transaction after as long too."""


async def make_live(
    database: Database, catch_up: CatchUp, lock: ReplayLock, progress: Progress
) -> None:
    """Catch a generation up and make it live. Questions go on; changes wait for the last step.

    Raises:
        NotSwitched: it can't be caught up.
        Unavailable: a server failed, or the writers leave no gap; the live generation stays, unless
            the connection broke while the commit was under way and could not be made again.
    """
    chosen, project = catch_up.builder.generation, catch_up.log.project
    for tried in range(MOST_TRIES):
        await catch_up.approach(progress)
        await lock.prove()
        try:
            done = await _switched(database, catch_up)
        except (Unavailable, TimeoutError) as error:
            done = await _is_live(database, chosen)
            if not done and not isinstance(error, WriteConflict | TimeoutError):
                raise
            log.info("switch.postponed", project=project, tried=tried, error=str(error), done=done)
        if done:
            log.info("generation.switched", project=project, generation=chosen.id)
            return
        await asyncio.sleep(PAUSE_SECONDS)
    raise Unavailable(
        f"generation {chosen.id} of {project} could not be switched to: writers leave no gap; "
        "try again when fewer changes come in"
    )


async def _is_live(database: Database, chosen: Generation) -> bool:
    """Whether a commit was done whose answer was lost."""
    async with database.scope(chosen.project_id) as connection:
        return (await generations.live(connection, chosen.project_id)).id == chosen.id


async def _switched(database: Database, catch_up: CatchUp) -> bool:
    """One try; False: too much was missing to catch up while writers wait."""
    live, chosen = catch_up.live, catch_up.builder.generation
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        exclusive(database, live.project_id) as connection,
    ):
        if not await catch_up.finish():
            return False
        await switch(connection, live, chosen)
        kill_point("replay.switching")
    return True
