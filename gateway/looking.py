"""Snapshot of a deployment: streams, memory, workers, models, providers and warnings."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis

from events import Backlog, Names, read_backlog
from events.headroom import read_memory
from events.heartbeats import Heartbeats
from gateway.alarms import SILENT_SECONDS, alarms
from gateway.worker_status import model_rows, provider_rows, worker_rows

__all__ = ["look", "stream_row"]


async def look(redis: Redis, names: Names) -> dict[str, Any]:
    """Read the state of a deployment from Redis, in a few round trips.

    Raises:
        Unavailable: Redis can't be reached.
    """
    memory = await read_memory(redis)
    backlog = await read_backlog(redis, names)
    beats = await Heartbeats(redis, names).read()
    alive = [beat for beat in beats if beat.age.total_seconds() <= SILENT_SECONDS]
    snapshot = {
        "streams": [stream_row(stream) for stream in backlog],
        "memory": {
            "used_bytes": memory.used_bytes,
            "limit_bytes": memory.limit_bytes or None,
            "share": round(memory.share, 3),
            "refuses_changes": memory.refuses_changes,
            "refuses_questions": memory.refuses_questions,
        },
        "workers": worker_rows(beats),
        "models": model_rows(alive),
        "providers": await provider_rows(redis, names, alive),
    }
    return snapshot | {"warnings": alarms(snapshot)}


def stream_row(backlog: Backlog) -> dict[str, Any]:
    """Row of ``status`` for one stream."""
    age = backlog.oldest_unacknowledged
    return {
        "topic": backlog.topic.value,
        "partition": backlog.partition,
        "lag": backlog.lag,
        "pending": backlog.pending,
        "oldest_unacknowledged_s": None if age is None else round(age.total_seconds(), 3),
        "dead_letters": backlog.dead_letters,
    }
