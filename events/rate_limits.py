"""Rate limiter for model providers: a limit applies to all workers together, not to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from events.names import Names
from events.server.connection import redis_errors
from events.server.scripts import AcquireRequest, HoldBack

__all__ = ["EVERY_PROVIDER", "LONGEST_HOLD", "RateLimiter", "RateLimits", "read_held"]

EVERY_PROVIDER = ""
LONGEST_HOLD = timedelta(minutes=1)
"""Longest hold that is honoured; then one request is sent, because limits may have been raised."""

_DOCUMENTS_SHARE = 0.8


@dataclass(frozen=True)
class RateLimits:
    """Limits of providers by name; ``EVERY_PROVIDER`` holds those of providers without a name."""

    requests_per_minute: Mapping[str, int] = field(default_factory=dict)
    tokens_per_minute: Mapping[str, int] = field(default_factory=dict)

    def of(self, provider: str) -> tuple[int, int]:
        """Return requests and tokens per minute; 0 means no limit."""
        limits = (self.requests_per_minute, self.tokens_per_minute)
        requests, tokens = (
            by_provider.get(provider, by_provider.get(EVERY_PROVIDER, 0)) for by_provider in limits
        )
        return requests, tokens


class RateLimiter:
    """Acquires requests to providers, sharing the limits with all processes of a deployment.

    Documents leave a fifth of the burst to questions.
    """

    def __init__(self, redis: Redis, names: Names, limits: RateLimits | None = None) -> None:
        self._names = names
        self._limits = limits or RateLimits()
        self._acquire = AcquireRequest(redis)
        self._block = HoldBack(redis)

    def tokens_per_minute(self, provider: str) -> int:
        """Return the limit of tokens per minute; 0 means none."""
        return self._limits.of(provider)[1]

    async def acquire(self, provider: str, tokens: int, *, urgent: bool) -> timedelta:
        """Acquire one request with its tokens; return the time to wait before a retry, or zero.

        Raises:
            Unavailable: Redis can't be reached.
        """
        requests_limit, tokens_limit = self._limits.of(provider)
        with redis_errors():
            return await self._acquire(
                held=self._names.rate_limit(provider, "held"),
                requests=self._names.rate_limit(provider, "requests"),
                tokens=self._names.rate_limit(provider, "tokens"),
                share=1.0 if urgent else _DOCUMENTS_SHARE,
                count=tokens,
                requests_per_minute=requests_limit,
                tokens_per_minute=tokens_limit,
            )

    async def block_requests(self, provider: str, wait: timedelta) -> None:
        """Stop all requests to a provider for ``wait``, at most for ``LONGEST_HOLD``.

        Raises:
            Unavailable: Redis can't be reached.
        """
        with redis_errors():
            await self._block(self._names.rate_limit(provider, "held"), min(wait, LONGEST_HOLD))


async def read_held(redis: Redis, names: Names, providers: Sequence[str]) -> dict[str, float]:
    """Return the seconds for which requests to each provider are still stopped; 0 if they are not.

    Raises:
        Unavailable: Redis can't be reached.
    """
    seconds: dict[str, float] = {}
    for provider in providers:
        with redis_errors():
            left_ms: Any = await redis.pttl(names.rate_limit(provider, "held"))
        seconds[provider] = max(0, left_ms) / 1000
    return seconds
