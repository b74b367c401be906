"""Time until the work of a dead or stopped worker is settled."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

from redis.exceptions import ResponseError

from events.names import GROUPS, Topic
from tests.chaos.fleet import Worker
from tests.chaos.runs import Run
from tests.support.waiting import eventually

__all__ = ["owed", "settled_since", "taken_over"]

_MOST_PENDING = 10_000
_LONGEST_SECONDS = 60.0

Owed = Mapping[Topic, frozenset[str]]


async def owed(run: Run, worker: Worker) -> Owed:
    """Entries that are pending for a worker, as ``partition/id`` by topic."""
    found = {topic: await _pending(run, topic, worker.consumer) for topic in GROUPS}
    return {topic: frozenset(ids) for topic, ids in found.items() if ids}


async def taken_over(run: Run, worker: Worker) -> float:
    """Seconds from a worker's end until the last of its pending entries is settled."""
    await worker.ended()
    assert worker.ended_at is not None
    return await settled_since(worker.ended_at, run, worker)


async def settled_since(began: float, run: Run, *workers: Worker) -> float:
    """Seconds from ``began`` (``time.monotonic``) until the entries of workers are settled."""
    pending = [await owed(run, worker) for worker in workers]
    left = {
        topic: frozenset().union(*(one.get(topic, frozenset()) for one in pending))
        for topic in GROUPS
    }

    async def settled() -> bool:
        return not any([ids & await _pending(run, topic) for topic, ids in left.items()])

    await eventually(settled, f"{left} is settled", timeout=_LONGEST_SECONDS, every=0.1)
    return monotonic() - began


async def _pending(run: Run, topic: Topic, consumer: str = "") -> set[str]:
    """Pending entries of the consumers whose names begin with ``consumer``."""
    return {
        f"{partition}/{row['message_id'].decode()}"
        for partition in range(run.names.partitions)
        for row in await _rows(run, run.names.stream(topic, partition), GROUPS[topic])
        if row["consumer"].startswith(consumer.encode())
    }


async def _rows(run: Run, stream: str, group: str) -> list[Any]:
    try:
        rows: Any = await run.redis.xpending_range(stream, group, "-", "+", _MOST_PENDING)
    except ResponseError:
        return []  # the group does not exist yet
    return list(rows)
