"""How full Redis may be before new changes are refused."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from functools import partial

from redis.asyncio import Redis

from events.retrying import PATIENCE, retrying
from runtime.errors import LogFull

__all__ = ["Headroom"]

_FULL = 0.9
_HEADROOM_SECONDS = 1.0


class Headroom:
    """Refuses new work while Redis still has room for what the workers must write."""

    def __init__(self, redis: Redis, patience: timedelta = PATIENCE) -> None:
        self._redis = redis
        self._patience = patience
        self._checked_at = -math.inf

    async def check(self) -> None:
        """Make sure that there is room; looks at most once a second.

        Raises:
            LogFull: Redis is near its memory limit.
            Unavailable: it could not be reached for as long as ``patience``.
        """
        now = asyncio.get_running_loop().time()
        if now < self._checked_at + _HEADROOM_SECONDS:
            return
        memory = await retrying(partial(self._redis.info, "memory"), self._patience)
        limit_bytes = int(memory["maxmemory"])
        if limit_bytes and memory["used_memory"] > _FULL * limit_bytes:
            raise LogFull(
                f"Redis is above {_FULL:.0%} of its memory limit of {limit_bytes:,} bytes: "
                "let the workers catch up, or raise maxmemory"
            )
        self._checked_at = now
