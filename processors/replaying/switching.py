"""Switch to another generation: applies the last few changes and makes it live, atomically."""

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
"""Longest time that writers wait; the database ends an idle transaction after as long, too."""


async def make_live(
    database: Database, catch_up: CatchUp, lock: ReplayLock, progress: Progress
) -> None:
    """Catch a generation up and make it live. Queries are not blocked; writers wait at the end.

    Raises:
        NotSwitched: it can't be caught up.
        Unavailable: a server failed, or the write load is too high. The live generation is
            unchanged, unless the connection broke during the commit and could not be restored.
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
        f"generation {chosen.id} of {project} could not be made live: the write load is too high; "
        "try again when fewer changes arrive"
    )


async def _is_live(database: Database, chosen: Generation) -> bool:
    """Return whether the generation is live: the commit may have succeeded without a reply."""
    async with database.scope(chosen.project_id) as connection:
        return (await generations.live(connection, chosen.project_id)).id == chosen.id


async def _switched(database: Database, catch_up: CatchUp) -> bool:
    """Try to switch once. Returns False if too much is missing to catch up while writers wait."""
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
