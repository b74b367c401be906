"""Deletion of a generation that is not read any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from processors.replaying.beginning import live_generation
from processors.replaying.opening import Tools
from processors.replaying.returning import find_generation
from runtime import protocol
from runtime.errors import UsageError
from runtime.kill_points import kill_point
from store.database import Database
from store.dropping import drop_rows, forget, let_go
from store.generations import Generation
from store.replay_lock import replay_lock

__all__ = ["drop"]

Progress = Callable[[int], None]
"""Called with the number of rows deleted so far."""


async def drop(tools: Tools, generation_id: int, progress: Progress) -> int:
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
        live = await live_generation(tools, project)
        listed = await tools.store.generations(project)
        _check(generation, _replaced_at(generation, live, listed), datetime.now(UTC))
        if not await let_go(tools.database, generation):
            raise _is_live(generation)
        await tools.indexes.drop(generation.project_id, generation.id)
        return await _drop_rows(tools.database, generation, progress)


async def _drop_rows(database: Database, generation: Generation, progress: Progress) -> int:
    gone = 0
    async for rows in drop_rows(database, generation):
        gone += rows
        progress(gone)
        kill_point("replay.dropping")
    await forget(database, generation)
    return gone


def _replaced_at(
    generation: Generation, live: Generation, known: Sequence[Generation]
) -> datetime | None:
    """Latest time when a query can have begun to read a generation: the first switch after its own.

    Returns None if it was never live. The switch to a generation that was dropped or became live
    again is not recorded any more; such a switch can only have been earlier.
    """
    if generation.switched_at is None:
        return None
    later = [other.switched_at for other in known if other.switched_at is not None]
    return min((at for at in later if at > generation.switched_at), default=live.switched_at)


def _check(generation: Generation, replaced_at: datetime | None, now: datetime) -> None:
    if generation.state == "live":
        raise _is_live(generation)
    if replaced_at is None:
        return
    rest = replaced_at + protocol.QUERY_DEADLINE - now
    if generation.state == "former" and rest > timedelta():
        raise UsageError(
            f"generation {generation.id} may have answered until {replaced_at:%H:%M:%S} UTC, "
            f"and queries may still read it: drop it in {rest.total_seconds():.0f} s"
        )


def _is_live(generation: Generation) -> UsageError:
    return UsageError(
        f"generation {generation.id} is live: switch to another one first (`headrace replay list`)"
    )
