"""When a request may go to a provider: its limits are kept before it has to remind us of them."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta
from time import monotonic
from typing import Protocol

from processors.inference.types import Urgency
from runtime import metrics
from runtime.errors import RateLimited

__all__ = ["LONGEST_WAITS", "Queue", "Turns"]

LONGEST_WAITS = {
    Urgency.QUERY: timedelta(seconds=1),
    Urgency.LIVE: timedelta(seconds=60),
    Urgency.BULK: timedelta(seconds=60),
}
"""Beyond it a question does without the model, and a change waits in its stream."""

_JITTER = 0.1


class Turns(Protocol):
    """What a provider allows all workers together."""

    def tokens_per_minute(self, provider: str) -> int:
        """0: no limit."""
        ...

    async def take(self, provider: str, tokens: int, *, urgent: bool) -> timedelta:
        """Take a turn; how long to wait before trying again, or zero."""
        ...

    async def hold_back(self, provider: str, wait: timedelta) -> None:
        """Let nobody take a turn for so long."""
        ...


class Queue:
    """Where the requests of this process wait for their turn at one provider.

    Without ``turns`` nobody waits.
    """

    def __init__(self, provider: str, turns: Turns | None) -> None:
        self._provider = provider
        self._turns = turns
        self._waiting = 0

    @property
    def counts_tokens(self) -> bool:
        """Whether the provider has a limit of tokens."""
        return self._turns is not None and self._turns.tokens_per_minute(self._provider) > 0

    def most_tokens(self, otherwise: int) -> int:
        """Tokens that one request may have, so that it never needs a minute's worth at once."""
        limit = 0 if self._turns is None else self._turns.tokens_per_minute(self._provider)
        return min(otherwise, max(1, limit // 20)) if limit else otherwise

    async def turn(self, tokens: int, urgency: Urgency) -> None:
        """Wait for the turn of a request.

        Raises:
            RateLimited: the wait is longer than ``LONGEST_WAITS``.
            Unavailable: Redis can't be reached.
        """
        if self._turns is None:
            return
        begun = monotonic()
        self._waits(1)
        try:
            await self._wait(self._turns, tokens, urgency)
        finally:
            self._waits(-1)
            metrics.MODEL_TURN_SECONDS.observe(monotonic() - begun, provider=self._provider)

    async def hold_back(self, wait: timedelta) -> None:
        """The provider asks everybody to wait; raises as ``turn``."""
        if self._turns is not None:
            await self._turns.hold_back(self._provider, wait)

    async def _wait(self, turns: Turns, tokens: int, urgency: Urgency) -> None:
        left = LONGEST_WAITS[urgency]
        urgent = urgency is Urgency.QUERY
        while wait := await turns.take(self._provider, tokens, urgent=urgent):
            if wait > left:
                raise RateLimited(f"{self._provider} is at its limit of requests or tokens", wait)
            left -= wait
            pause = wait * random.uniform(1, 1 + _JITTER)  # noqa: S311 - jitter needs no secrecy
            await asyncio.sleep(pause.total_seconds())

    def _waits(self, more: int) -> None:
        self._waiting += more
        metrics.MODEL_TURNS.set(self._waiting, provider=self._provider)
