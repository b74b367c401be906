"""Following changes to their outcome."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta

from events.connection import LONGEST_BLOCK
from events.entries import order
from events.names import Position
from events.outcomes import Outcome, Outcomes
from events.publishing import Receipt
from runtime.errors import Unavailable

__all__ = ["follow"]

_MARGIN_MILLISECONDS = 1000


async def follow(
    outcomes: Outcomes, receipts: Iterable[Receipt], patience: timedelta
) -> AsyncIterator[Outcome]:
    """The outcome of each receipt's change, as they come, each once, partition by partition.

    Raises:
        Unavailable: no outcome came for as long as ``patience``.
    """
    by_partition: dict[int, set[str]] = defaultdict(set)
    for receipt in receipts:
        by_partition[Position.from_token(receipt.token).partition].add(receipt.token)
    for partition, tokens in by_partition.items():
        async for outcome in _follow_partition(outcomes, partition, tokens, patience):
            yield outcome


async def _follow_partition(
    outcomes: Outcomes, partition: int, tokens: set[str], patience: timedelta
) -> AsyncIterator[Outcome]:
    now = asyncio.get_running_loop().time
    last = _start(tokens, await outcomes.clock())
    heard_at = now()
    while tokens:
        left = timedelta(seconds=heard_at + patience.total_seconds() - now())
        if left <= timedelta():
            raise Unavailable(
                f"{len(tokens)} changes have no outcome, and none came for "
                f"{patience.total_seconds():g} s: are workers running?"
            )
        for entry in await outcomes.read(partition, last, block=min(left, LONGEST_BLOCK)):
            last = entry.entry_id
            if entry.outcome.data.token in tokens:
                tokens.remove(entry.outcome.data.token)
                heard_at = now()
                yield entry.outcome


def _start(tokens: set[str], now: int) -> str:
    """An outcome is younger than its change, and one server's clock stamps both.

    Where that clock was set back, there are changes of the future, with outcomes of any time.
    """
    times = [order(Position.from_token(token).entry_id)[0] for token in tokens]
    if max(times) > now:
        return "0-0"
    return f"{max(0, min(times) - _MARGIN_MILLISECONDS)}-0"
