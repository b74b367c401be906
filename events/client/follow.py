"""Following changes until their outcomes arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta

from events.client.outcomes import Outcome, Outcomes
from events.client.publisher import Receipt
from events.models import DocumentEmbedded, DocumentIndexed
from events.names import LogPosition
from events.server.connection import LONGEST_BLOCK
from events.streams.entries import order
from runtime.errors import Unavailable

__all__ = ["Following", "follow"]

_MARGIN_MILLISECONDS = 1000


class Following:
    """A set of changes whose outcomes are awaited, over all partitions; more may be added.

    Each change has one outcome. With ``vectors``, a change with pending chunks has two:
    ``DocumentIndexed`` and then ``DocumentEmbedded``. A change takes about 100 bytes.

    A stream of outcomes keeps the latest 100,000, so read while you publish.
    """

    def __init__(self, outcomes: Outcomes, *, vectors: bool = False) -> None:
        self._outcomes = outcomes
        self._vectors = vectors
        self._applying = set[str]()
        self._embedding = set[str]()
        self._started_ms: int | None = None
        self._last: dict[int, str] = {}

    @property
    def waiting(self) -> int:
        """Number of changes without a final outcome."""
        return len(self._applying) + len(self._embedding)

    @property
    def applying(self) -> int:
        """Number of changes that are not yet searchable by keyword."""
        return len(self._applying)

    async def add(self, tokens: Iterable[str]) -> None:
        """Follow these changes too.

        Raises:
            Unavailable: Redis could not be reached for 10 s.
        """
        added = set(tokens)
        if not added:
            return
        self._applying |= added
        start = _start(added, await self._outcomes.clock())
        if self._started_ms is None or start < self._started_ms:
            self._started_ms = start
            self._last = {}
        if max(map(_partition, added)) >= self._outcomes.partitions:
            await self._outcomes.follow_raise()
        for partition in range(self._outcomes.partitions):
            self._last.setdefault(partition, f"{self._started_ms}-0")

    async def read(self, block: timedelta | None = None) -> list[Outcome]:
        """Return new outcomes of these changes; empty if none arrives (within ``block``).

        Raises:
            Unavailable: Redis could not be reached for 10 s.
        """
        news: list[Outcome] = []
        while self.waiting:
            batches = await self._outcomes.read_all(self._last, block=None if news else block)
            for partition, entries in batches.items():
                self._last[partition] = entries[-1].entry_id
                outcomes = (entry.outcome for entry in entries)
                news += [outcome for outcome in outcomes if outcome and self._is_news(outcome)]
            if news or not batches:
                break
        return news

    def _is_news(self, outcome: Outcome) -> bool:
        """Return whether the outcome is awaited; a worker may repeat one, with nothing pending."""
        token = outcome.data.token
        if isinstance(outcome, DocumentIndexed):
            if token not in self._applying:
                return False
            self._applying.remove(token)
            if self._vectors and outcome.data.chunks_pending:
                self._embedding.add(token)
            return True
        if isinstance(outcome, DocumentEmbedded) and not self._vectors:
            return False
        is_waiting = token in self._applying or token in self._embedding
        self._applying.discard(token)
        self._embedding.discard(token)
        return is_waiting


async def follow(
    outcomes: Outcomes,
    receipts: Iterable[Receipt],
    patience: timedelta,
    *,
    vectors: bool = False,
) -> AsyncIterator[Outcome]:
    """Yield the outcome of each receipt's change in order of arrival; see ``Following``.

    Raises:
        Unavailable: no outcome arrived for as long as ``patience``.
    """
    now = asyncio.get_running_loop().time
    following = Following(outcomes, vectors=vectors)
    await following.add(receipt.token for receipt in receipts)
    received_at = now()
    while following.waiting:
        left = timedelta(seconds=received_at + patience.total_seconds() - now())
        if left <= timedelta():
            raise Unavailable(
                f"{following.waiting} changes have no outcome, and none arrived for "
                f"{patience.total_seconds():g} s",
                "check that workers run",
            )
        for outcome in await following.read(min(left, LONGEST_BLOCK)):
            received_at = now()
            yield outcome


def _start(tokens: Iterable[str], now: int) -> int:
    """Return the time in milliseconds from which outcomes must be read.

    An outcome is younger than its change, and one server's clock stamps both. If that clock was set
    back, changes may lie in the future, and their outcomes at any time.
    """
    times = [order(LogPosition.from_token(token).entry_id)[0] for token in tokens]
    if max(times) > now:
        return 0
    return max(0, min(times) - _MARGIN_MILLISECONDS)


def _partition(token: str) -> int:
    return LogPosition.from_token(token).partition
