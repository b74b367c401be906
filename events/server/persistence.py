"""Rewriting of Redis' files, so that they hold nothing that is deleted."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic
from typing import Any

from redis import exceptions
from redis.asyncio import Redis

from events.server.cluster import nodes_of
from events.server.connection import redis_errors
from runtime.errors import Unavailable

__all__ = ["rewrite_files"]

_LOOK_EVERY_S = 0.1


async def rewrite_files(redis: Redis, patience: timedelta) -> list[str]:
    """Rewrite the log and the snapshot of Redis, if it keeps them; return which were rewritten.

    Of a cluster, those of each node are, also of the replicas.

    Raises:
        ConfigurationError: our user may not do that.
        Unavailable: Redis can't be reached, fails, or takes longer than ``patience``.
    """
    deadline = monotonic() + patience.total_seconds()
    with redis_errors():
        nodes = await nodes_of(redis)
    done = [name for node in nodes for name in await _rewrite(node, deadline)]
    return list(dict.fromkeys(done))


async def _rewrite(client: Any, deadline: float) -> list[str]:
    info = await _persistence(client)
    done = []
    if int(info["aof_enabled"]):
        await _when_idle(client, deadline)
        await _command(client, "BGREWRITEAOF")
        info = await _when_idle(client, deadline)
        if info["aof_last_bgrewrite_status"] != "ok":
            raise Unavailable("Redis failed to rewrite its log", "check that its disk has room")
        done.append("log")
    if await _saves(client, info):
        await _command(client, "BGSAVE")
        info = await _when_idle(client, deadline)
        if info["rdb_last_bgsave_status"] != "ok":
            raise Unavailable("Redis failed to save its snapshot", "check that its disk has room")
        done.append("snapshot")
    return done


async def _saves(client: Any, info: dict[str, Any]) -> bool:
    """Return whether there may be a snapshot; true if the configuration may not be read."""
    if int(info["rdb_last_bgsave_time_sec"]) >= 0:
        return True
    try:
        setting = await client.config_get("save")
    except exceptions.ResponseError:
        return True
    return bool(setting.get("save") or setting.get(b"save"))


async def _when_idle(client: Any, deadline: float) -> dict[str, Any]:
    """Wait until Redis writes none of its files; return its persistence info."""
    busy = "aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress"
    while True:
        info = await _persistence(client)
        if not any(int(info[name]) for name in busy):
            return info
        if monotonic() > deadline:
            raise Unavailable("Redis is still writing its files", "run the purge again later")
        await asyncio.sleep(_LOOK_EVERY_S)


async def _persistence(client: Any) -> dict[str, Any]:
    with redis_errors():
        info: dict[str, Any] = await client.info("persistence")
    return info


async def _command(client: Any, name: str) -> None:
    with redis_errors():
        await client.execute_command(name)
