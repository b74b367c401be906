"""Rows of ``status``; their fields are keys of its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from events.server.connection import MemoryUse
from events.streams.backlog import Backlog

__all__ = ["Model", "Provider", "Snapshot", "Worker", "rounded_seconds", "stream_row"]


@dataclass(frozen=True, slots=True)
class Worker:
    """Identity, in-flight events by topic, and counters of one worker.

    A worker of another version may report fewer fields; the others are None, 0 or ''.
    """

    worker: str
    roles: Sequence[str]
    version: str
    up_s: float | None
    silent_s: float
    in_work: Mapping[str, int]
    in_flight: Mapping[str, int]
    memory_bytes: int | None
    loop_lag_s: float
    done: int
    retried: int
    taken_over: int
    leases_lost: int
    dead: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Model:
    """Number of workers that use a remote model, and in how many its circuit is not closed."""

    model: str
    workers: int
    down_in: int
    failures: int
    next_probe_s: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Provider:
    """Pause of a provider, and number and 99th percentile of the waits for its rate limits."""

    provider: str
    held_s: float
    waiting: int
    wait_p99_s: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of a deployment, with its warnings."""

    streams: Sequence[Backlog]
    memory: MemoryUse
    workers: Sequence[Worker]
    models: Sequence[Model]
    providers: Sequence[Provider]
    warnings: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Fields as ``status --json`` prints them."""
        memory = {
            "used_bytes": self.memory.used_bytes,
            "limit_bytes": self.memory.limit_bytes or None,
            "share": round(self.memory.share, 3),
            "refuses_changes": self.memory.refuses_changes,
            "refuses_questions": self.memory.refuses_questions,
        }
        streams = [stream_row(stream) for stream in self.streams]
        return {**asdict(self), "streams": streams, "memory": memory}


def stream_row(backlog: Backlog) -> dict[str, Any]:
    """Columns and JSON of one stream."""
    return {
        "topic": backlog.topic.value,
        "partition": backlog.partition,
        "lag": backlog.lag,
        "pending": backlog.pending,
        "oldest_unacknowledged_s": rounded_seconds(backlog.oldest_unacknowledged),
        "dead_letters": backlog.dead_letters,
    }


def rounded_seconds(age: timedelta | None) -> float | None:
    """Seconds with three decimals; None remains None."""
    return None if age is None else round(age.total_seconds(), 3)
