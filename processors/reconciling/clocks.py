"""Check of clocks: log positions use the clock of Redis, deadlines the clock of the caller."""

from __future__ import annotations

from collections.abc import Mapping

from redis.asyncio import Redis

from events.connection import redis_errors
from processors.reconciling.findings import Condition

__all__ = ["judge_clocks", "redis_clock"]

_NOTICEABLE_S = 1.0
_HARMFUL_S = 30.0
_CURE = "let NTP set the clocks of all hosts"


async def redis_clock(redis: Redis) -> float:
    """Read the server's time in Unix seconds.

    Raises:
        Unavailable: the server can't be reached.
    """
    with redis_errors():
        seconds, microseconds = await redis.time()
    return float(seconds) + float(microseconds) / 1e6


def judge_clocks(ahead_s: Mapping[str, float]) -> Condition:
    """Judge by how many seconds each server is ahead of this host; negative values are behind."""
    detail = ", ".join(f"{name} {_offset(seconds)}" for name, seconds in ahead_s.items())
    worst = max((abs(seconds) for seconds in ahead_s.values()), default=0.0)
    if worst >= _HARMFUL_S:
        return Condition.problem("clocks", f"{detail}: freshness and deadlines are wrong", _CURE)
    if worst >= _NOTICEABLE_S:
        return Condition.warning("clocks", detail, _CURE)
    return Condition.ok("clocks", detail or "not compared: no server was reachable")


def _offset(seconds: float) -> str:
    if abs(seconds) < _NOTICEABLE_S:
        return "in sync"
    return f"{abs(seconds):,.1f} s {'ahead' if seconds > 0 else 'behind'}"
