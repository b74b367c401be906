"""Rate limiting of requests: they wait here, so that the provider need not refuse them."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from time import monotonic
from typing import Protocol

from processors.embedders.embedder import Urgency
from runtime import metrics
from runtime.errors import RateLimited

__all__ = ["LONGEST_WAITS", "RateLimiter", "RequestQueue"]

LONGEST_WAITS = {
    Urgency.QUERY: timedelta(seconds=1),
    Urgency.LIVE: timedelta(seconds=60),
    Urgency.BULK: timedelta(seconds=60),
}
"""Longest waits. After that, a question is answered without the model, and a change stays in its
stream."""

_JITTER = 0.1


class RateLimiter(Protocol):
    """Rate limiter for a provider, shared by all workers."""

    def tokens_per_minute(self, provider: str) -> int:
        """Return the provider's limit of tokens; 0 means no limit."""
        ...

    async def acquire(self, provider: str, tokens: int, *, urgent: bool) -> timedelta:
        """Acquire a request. Returns zero, or the time to wait before trying again."""
        ...

    async def block_requests(self, provider: str, wait: timedelta) -> None:
        """Block all requests to the provider for ``wait``."""
        ...


class RequestQueue:
    """Queue of this process's requests to one provider.

    If ``rate_limiter`` is None, requests do not wait.
    """

    def __init__(self, provider: str, rate_limiter: RateLimiter | None) -> None:
        self._provider = provider
        self._rate_limiter = rate_limiter
        self._waiting = 0

    @property
    def counts_tokens(self) -> bool:
        """True if the provider has a limit of tokens."""
        return (
            self._rate_limiter is not None
            and self._rate_limiter.tokens_per_minute(self._provider) > 0
        )

    def most_tokens(self, default: int) -> int:
        """Most tokens of one request: ``default``, or a small part of the limit per minute."""
        limit = (
            0
            if self._rate_limiter is None
            else self._rate_limiter.tokens_per_minute(self._provider)
        )
        return min(default, max(1, limit // 20)) if limit else default

    async def acquire(self, tokens: int, urgency: Urgency) -> None:
        """Wait until the rate limiter admits a request.

        Raises:
            RateLimited: the wait is longer than ``LONGEST_WAITS``.
            Unavailable: Redis cannot be reached.
        """
        if self._rate_limiter is None:
            return
        began_at = monotonic()
        self._add_waiting(1)
        try:
            await self._wait(self._rate_limiter, tokens, urgency)
        finally:
            self._add_waiting(-1)
            metrics.MODEL_WAIT_SECONDS.observe(monotonic() - began_at, provider=self._provider)

    async def block_requests(self, wait: timedelta) -> None:
        """Block all workers' requests, as the provider asks for it; raises as ``acquire``."""
        if self._rate_limiter is not None:
            await self._rate_limiter.block_requests(self._provider, wait)

    async def _wait(self, rate_limiter: RateLimiter, tokens: int, urgency: Urgency) -> None:
        remaining = LONGEST_WAITS[urgency]
        urgent = urgency is Urgency.QUERY
        while wait := await rate_limiter.acquire(self._provider, tokens, urgent=urgent):
            if wait > remaining:
                raise RateLimited(
                    f"{self._provider} is at its limit of requests or tokens for the next "
                    f"{wait.total_seconds():.1f} s",
                    retry_after=wait,
                )
            remaining -= wait
            pause = wait * random.uniform(1, 1 + _JITTER)  # noqa: S311 - jitter needs no secrecy
            await asyncio.sleep(pause.total_seconds())

    def _add_waiting(self, difference: int) -> None:
        self._waiting += difference
        metrics.MODEL_REQUESTS_WAITING.set(self._waiting, provider=self._provider)
