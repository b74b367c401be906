"""Following of changes to their outcomes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable
from datetime import timedelta

from events.connection import LONGEST_BLOCK
from events.entries import order
from events.models import DocumentEmbedded, DocumentIndexed, DocumentRejected
from events.names import Position
from events.outcomes import Outcome, Outcomes
from events.publishing import Receipt
from runtime.errors import Unavailable

__all__ = ["follow"]

_MARGIN_MILLISECONDS = 1000


async def follow(
    outcomes: Outcomes,
    receipts: Iterable[Receipt],
    patience: timedelta,
    *,
    vectors: bool = False,
) -> AsyncIterator[Outcome]:
    """The outcomes of each receipt's change as they come, partition by partition.

    One for each change; with ``vectors``, a change with pending chunks has two: ``DocumentIndexed``
    and then ``DocumentEmbedded``.

    Raises:
        Unavailable: no outcome came for as long as ``patience``.
    """
    by_partition: dict[int, set[str]] = defaultdict(set)
    for receipt in receipts:
        by_partition[Position.from_token(receipt.token).partition].add(receipt.token)
    for partition, tokens in by_partition.items():
        async for outcome in _follow_partition(outcomes, partition, tokens, patience, vectors):
            yield outcome


async def _follow_partition(
    outcomes: Outcomes, partition: int, tokens: set[str], patience: timedelta, vectors: bool
) -> AsyncIterator[Outcome]:
    now = asyncio.get_running_loop().time
    last = _start(tokens, await outcomes.clock())
    received_at = now()
    indexed: set[str] = set()
    while tokens:
        left = timedelta(seconds=received_at + patience.total_seconds() - now())
        if left <= timedelta():
            raise Unavailable(
                f"{len(tokens)} changes have no outcome, and none came for "
                f"{patience.total_seconds():g} s: are workers running?"
            )
        for entry in await outcomes.read(partition, last, block=min(left, LONGEST_BLOCK)):
            last, outcome = entry.entry_id, entry.outcome
            token = outcome.data.token
            if token not in tokens or not _is_news(outcome, indexed, vectors):
                continue
            indexed.add(token)
            if _is_final(outcome, vectors):
                tokens.remove(token)
            received_at = now()
            yield outcome


def _is_news(outcome: Outcome, indexed: Collection[str], vectors: bool) -> bool:
    """False for vectors that are not waited for, and for an outcome that a worker has repeated.

    A repeated one may have nothing pending although the first one had: its vectors are on the way.
    """
    if isinstance(outcome, DocumentEmbedded):
        return vectors
    return outcome.data.token not in indexed or isinstance(outcome, DocumentRejected)


def _is_final(outcome: Outcome, vectors: bool) -> bool:
    return not (vectors and isinstance(outcome, DocumentIndexed) and outcome.data.chunks_pending)


def _start(tokens: set[str], now: int) -> str:
    """An outcome is younger than its change, and one server's clock stamps both.

    Where that clock was set back, there are changes of the future, with outcomes of any time.
    """
    times = [order(Position.from_token(token).entry_id)[0] for token in tokens]
    if max(times) > now:
        return "0-0"
    return f"{max(0, min(times) - _MARGIN_MILLISECONDS)}-0"
