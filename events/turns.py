"""Turns at a provider of models: its limits hold for all workers together, not for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from events.connection import redis_errors
from events.names import Names
from events.scripts import HoldBack, TakeTurn

__all__ = ["EVERY_PROVIDER", "LONGEST_HOLD", "RateLimits", "Turns", "read_held"]

EVERY_PROVIDER = ""
LONGEST_HOLD = timedelta(minutes=1)
"""After it somebody asks again, whatever the provider wished: limits are raised, too."""

_DOCUMENTS_SHARE = 0.8


@dataclass(frozen=True)
class RateLimits:
    """What providers allow, by name; ``EVERY_PROVIDER`` is for those that aren't named."""

    requests_per_minute: Mapping[str, int] = field(default_factory=dict)
    tokens_per_minute: Mapping[str, int] = field(default_factory=dict)

    def of(self, provider: str) -> tuple[int, int]:
        """Requests and tokens per minute, 0: no limit."""
        limits = (self.requests_per_minute, self.tokens_per_minute)
        requests, tokens = (one.get(provider, one.get(EVERY_PROVIDER, 0)) for one in limits)
        return requests, tokens


class Turns:
    """Takes turns at providers, with all other processes of a deployment.

    Documents leave a fifth of what may go at once to questions.
    """

    def __init__(self, redis: Redis, names: Names, limits: RateLimits | None = None) -> None:
        self._names = names
        self._limits = limits or RateLimits()
        self._take = TakeTurn(redis)
        self._hold_back = HoldBack(redis)

    def tokens_per_minute(self, provider: str) -> int:
        """0: no limit."""
        return self._limits.of(provider)[1]

    async def take(self, provider: str, tokens: int, *, urgent: bool) -> timedelta:
        """Take one request of so many tokens; how long to wait before trying again, or zero.

        Raises:
            Unavailable: Redis can't be reached.
        """
        requests_limit, tokens_limit = self._limits.of(provider)
        with redis_errors():
            return await self._take(
                held=self._names.turns(provider, "held"),
                requests=self._names.turns(provider, "requests"),
                tokens=self._names.turns(provider, "tokens"),
                share=1.0 if urgent else _DOCUMENTS_SHARE,
                count=tokens,
                requests_per_minute=requests_limit,
                tokens_per_minute=tokens_limit,
            )

    async def hold_back(self, provider: str, wait: timedelta) -> None:
        """Let nobody take a turn for ``wait``, at most for ``LONGEST_HOLD``.

        Raises:
            Unavailable: Redis can't be reached.
        """
        with redis_errors():
            await self._hold_back(self._names.turns(provider, "held"), min(wait, LONGEST_HOLD))


async def read_held(redis: Redis, names: Names, providers: Sequence[str]) -> dict[str, float]:
    """Seconds for which each provider is still left alone, 0 for none.

    Raises:
        Unavailable: Redis can't be reached.
    """
    found: dict[str, float] = {}
    for provider in providers:
        with redis_errors():
            left_ms: Any = await redis.pttl(names.turns(provider, "held"))
        found[provider] = max(0, left_ms) / 1000
    return found
