"""Heartbeats of workers, sent every few seconds, for ``status`` and for alarms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any

from pydantic import BaseModel, ConfigDict
from redis.asyncio import Redis

from events.names import Names
from events.server.connection import redis_errors

__all__ = ["FORGET_AFTER", "Heartbeat", "Heartbeats"]

FORGET_AFTER = timedelta(minutes=10)
"""A worker that was silent for this long is removed."""


class _Circuit(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    model: str
    state: str
    failures: int
    next_probe_s: float | None
    reason: str


class _State(BaseModel):
    """Schema of the fields that ``status`` reads; needed because any user may write a heartbeat."""

    model_config = ConfigDict(allow_inf_nan=False)
    host: str = ""
    pid: int = 0
    roles: list[str] = []
    version: str = ""
    started_at: str = ""
    in_work: dict[str, int] = {}
    in_flight: dict[str, int] = {}
    circuits: list[_Circuit] = []
    memory_bytes: int | None = None
    loop_lag_s: float = 0
    transport: dict[str, int] = {}
    metrics: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Last heartbeat of a worker: ``age`` by the clock of Redis, ``state`` as it was sent."""

    worker: str
    age: timedelta
    state: Mapping[str, Any]


class Heartbeats:
    """The heartbeats of a deployment, in one hash by worker.

    A worker that ends removes its own entry; the entry of a killed worker is removed after
    ``FORGET_AFTER``.
    """

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._key = names.workers
        self._clock: tuple[int, float] | None = None

    async def beat(self, worker: str, state: Mapping[str, Any]) -> None:
        """Send the state of a worker.

        The clock of Redis is read with each beat, for the next one.

        Raises:
            Unavailable: Redis can't be reached.
            LogFull: Redis is at its memory limit.
        """
        with redis_errors():
            at_ms, read_at = self._clock or (await self._now_ms(), monotonic())
            at_ms += int((monotonic() - read_at) * 1000)
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.hset(self._key, worker, json.dumps({"at_ms": at_ms, "state": state}))
                pipeline.time()
                _, now = await pipeline.execute()
            self._clock = _milliseconds(now), monotonic()

    async def leave(self, worker: str) -> None:
        """Remove the entry of a worker; raises as ``beat``."""
        with redis_errors():
            await self._redis.hdel(self._key, worker)

    async def read(self) -> list[Heartbeat]:
        """Return all heartbeats that are not removed, by name; raises as ``beat``."""
        with redis_errors():
            stored: Any = await self._redis.hgetall(self._key)
            now_ms = await self._now_ms()
        beats = [_heartbeat(name, value, now_ms) for name, value in stored.items()]
        return sorted((beat for beat in beats if beat is not None), key=lambda beat: beat.worker)

    async def forget(self) -> None:
        """Remove workers that were silent for too long; raises as ``beat``."""
        for beat in await self.read():
            if beat.age > FORGET_AFTER:
                await self.leave(beat.worker)

    async def _now_ms(self) -> int:
        return _milliseconds(await self._redis.time())


def _milliseconds(time: tuple[int, int]) -> int:
    seconds, microseconds = time
    return int(seconds) * 1000 + int(microseconds) // 1000


def _heartbeat(worker: bytes, raw: bytes, now_ms: int) -> Heartbeat | None:
    """Parse a heartbeat; returns None if it was not written by a worker of Headrace."""
    try:
        value = json.loads(raw)
        age = timedelta(milliseconds=max(0, now_ms - int(value["at_ms"])))
        _State.model_validate(value["state"])
        return Heartbeat(worker.decode(), age, value["state"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
