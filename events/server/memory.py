"""Memory limits of Redis above which new work is refused: changes first, questions later."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from redis.asyncio import Redis

from events.server.connection import redis_errors
from events.server.retry import PATIENCE, retrying
from runtime.errors import LogFull

__all__ = ["CHANGES_UP_TO", "QUESTIONS_UP_TO", "Headroom", "MemoryUse", "read_memory"]

CHANGES_UP_TO = 0.9
QUESTIONS_UP_TO = 0.95
"""Shares of Redis' memory limit; above them, outcomes and replies still have room."""

_HEADROOM_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory use of Redis; ``limit_bytes`` is 0 if it has no limit."""

    used_bytes: int
    limit_bytes: int

    @property
    def share(self) -> float:
        """Used share of the limit; 0 without a limit."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    @property
    def refuses_changes(self) -> bool:
        """True if publishers get ``LogFull``."""
        return self.share > CHANGES_UP_TO

    @property
    def refuses_questions(self) -> bool:
        """True if queries get ``LogFull`` too."""
        return self.share > QUESTIONS_UP_TO


class Headroom:
    """Refuses new work while Redis still has room for the workers' writes.

    ``up_to`` is the share of the memory limit above which it refuses.
    """

    def __init__(
        self, redis: Redis, patience: timedelta = PATIENCE, up_to: float = CHANGES_UP_TO
    ) -> None:
        self._redis = redis
        self._patience = patience
        self._up_to = up_to
        self._checked_at = -math.inf

    async def check(self) -> None:
        """Check that Redis has room; it is queried at most once a second.

        Raises:
            LogFull: Redis is near its memory limit.
            Unavailable: Redis could not be reached for as long as ``patience``.
        """
        now = asyncio.get_running_loop().time()
        if now < self._checked_at + _HEADROOM_SECONDS:
            return
        use = await retrying(partial(_read, self._redis), self._patience)
        if use.share > self._up_to:
            raise LogFull(
                f"Redis is above {self._up_to:.0%} of its memory limit of {use.limit_bytes:,} "
                "bytes",
                "let the workers catch up, or raise maxmemory",
            )
        self._checked_at = now


async def read_memory(redis: Redis) -> MemoryUse:
    """Read the memory use of Redis.

    Raises:
        Unavailable: Redis can't be reached.
    """
    with redis_errors():
        return await _read(redis)


async def _read(redis: Redis) -> MemoryUse:
    memory = await redis.info("memory")
    return MemoryUse(int(memory["used_memory"]), int(memory["maxmemory"]))
