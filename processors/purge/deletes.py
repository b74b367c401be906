"""Deletion of documents through the log, so that replays delete them too."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from datetime import timedelta
from itertools import islice
from time import monotonic

from redis.asyncio import Redis

from events.client.client import Client
from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentIndexed, DocumentRejected
from events.names import ARCHIVER, Lane, Names
from events.streams.groups import reached, read_watermark
from runtime.errors import Unavailable, UsageError

__all__ = ["await_archived", "await_deletes", "publish_deletes"]

_BATCH = 256
_LIVE_CHANGES = 100
_POLL_SECONDS = 0.1


async def publish_deletes(
    client: Client, project: str, agent: str, uris: Iterable[str]
) -> dict[str, Receipt]:
    """Publish a delete of each document; return the receipts by uri.

    Raises:
        Unavailable: Redis can't be reached. Some deletes may be published; repeating does no harm.
        LogFull: Redis is near its memory limit.
    """
    names = list(uris)
    lane = Lane.LIVE if len(names) <= _LIVE_CHANGES else Lane.BULK
    receipts: dict[str, Receipt] = {}
    remaining = iter(names)
    while batch := list(islice(remaining, _BATCH)):
        changes = [
            DocumentChange(project=project, uri=uri, change="delete", agent=agent or None)
            for uri in batch
        ]
        published = await client.publish_many(changes, lane)
        receipts |= dict(zip(batch, published, strict=True))
    return receipts


async def await_deletes(
    client: Client, receipts: Collection[Receipt], patience: timedelta
) -> tuple[int, int]:
    """Wait for the outcome of each delete.

    Returns how many chunks were removed, and how many deletes were superseded by newer changes.

    Raises:
        UsageError: a delete was rejected.
        Unavailable: no outcome arrived within ``patience``.
    """
    chunks = superseded = 0
    async for outcome in client.outcomes(receipts, patience):
        if isinstance(outcome, DocumentRejected):
            problem = outcome.data.problem
            raise UsageError(f"{outcome.data.uri} can't be deleted: {problem.detail}")
        if isinstance(outcome, DocumentIndexed):
            chunks += outcome.data.chunks_removed
            superseded += outcome.data.outcome == "superseded"
    return chunks, superseded


async def await_archived(
    redis: Redis, names: Names, receipts: Collection[Receipt], patience: timedelta
) -> None:
    """Wait until all changes up to the given ones are indexed and archived.

    Raises:
        Unavailable: this took longer than ``patience``, or Redis can't be reached.
    """
    deadline = monotonic() + patience.total_seconds()
    while True:
        marks = [await read_watermark(redis, names), await read_watermark(redis, names, ARCHIVER)]
        if all(reached(mark, receipt.token) for mark in marks for receipt in receipts):
            return
        if monotonic() > deadline:
            raise Unavailable(
                f"after {patience.total_seconds():.0f} s some older changes are not both indexed "
                "and archived",
                "see `headrace status`, and run the purge again",
            )
        await asyncio.sleep(_POLL_SECONDS)
