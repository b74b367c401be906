"""Heartbeats of a worker: every few seconds it reports its state and its in-flight events."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import platform
import secrets
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

import structlog

from events.heartbeats import Heartbeats
from events.transport import App
from processors.embedders.remote.circuit_breaker import CircuitStatus
from runtime import metrics
from runtime.lifespan import wait_for_tick
from runtime.process_health import LoopLag, memory_bytes, return_memory
from store.postgres.revision import head_revision

__all__ = ["BEAT_EVERY", "HeartbeatSender", "WorkerState"]

log = structlog.get_logger(__name__)

BEAT_EVERY = timedelta(seconds=2)
IDLE_BEAT_EVERY = timedelta(seconds=4)
"""The same for a worker with nothing in flight; ``status`` warns of one after ten seconds."""

_FORGET_EVERY_BEATS = 30


@dataclass(frozen=True)
class WorkerState:
    """State of one worker, as reported in its heartbeat.

    ``in_work`` counts the events being handled, by topic; ``in_flight`` all that were read from
    the stream and not settled. ``loop_lag_s`` is the longest lag since the last beat.
    ``transport`` and ``metrics`` count since the start.
    """

    host: str
    pid: int
    roles: list[str]
    version: str
    started_at: str
    in_work: Mapping[str, int]
    in_flight: Mapping[str, int]
    circuits: list[Mapping[str, Any]]
    memory_bytes: int
    loop_lag_s: float
    transport: Mapping[str, int]
    metrics: Mapping[str, float]


class RemoteModels(Protocol):
    """Models with circuits."""

    @property
    def circuits(self) -> list[CircuitStatus]:
        """State of the circuit of each remote model that was loaded."""
        ...


class HeartbeatSender:
    """Sends heartbeats until the worker ends.

    Args:
        heartbeats: the store of heartbeats in Redis.
        roles: the worker's roles.
        app: the app with the worker's agents. It is None for a worker without agents.
        models: the worker's embedding and language models.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        roles: Collection[str],
        app: App | None = None,
        models: Sequence[RemoteModels] = (),
    ) -> None:
        self._heartbeats = heartbeats
        self._roles = sorted(roles)
        self._app = app
        self._models = models
        self._host = socket.gethostname()
        self._name = f"{self._host}:{os.getpid()}:{secrets.token_hex(4)}"
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._version = _version()
        self._lag = LoopLag()
        self._was_busy = False
        self._label = f"{self._host}:{os.getpid()}"
        metrics.BUILD_INFO.set(
            1,
            version=self._version,
            revision=head_revision(),
            python=platform.python_version(),
        )
        for role in self._roles:
            metrics.WORKER_INFO.set(1, worker=self._label, role=role, version=self._version)

    async def run(self, stop: asyncio.Event) -> None:
        """Send heartbeats until ``stop`` is set, then remove this worker's entry.

        Redis outages are tolerated.
        """
        watch = self._lag.watch(stop, lambda: self._was_busy)
        watching = asyncio.create_task(watch, name="loop lag")
        beats = 0
        try:
            while not stop.is_set():
                await self._try(self._beat)
                if beats % _FORGET_EVERY_BEATS == 0:
                    await self._try(self._heartbeats.forget)
                beats += 1
                await wait_for_tick(stop, BEAT_EVERY if self._was_busy else IDLE_BEAT_EVERY)
        finally:
            watching.cancel()
        await self._try(lambda: self._heartbeats.leave(self._name))

    @property
    def state(self) -> WorkerState:
        """Current state of the worker."""
        memory = memory_bytes()
        loop_lag_seconds = self._lag.longest_seconds()
        circuits = [circuit for models in self._models for circuit in models.circuits]
        in_flight = self._app.in_flight() if self._app is not None else {}
        metrics.WORKER_MEMORY_BYTES.set(memory, worker=self._label)
        metrics.WORKER_LOOP_LAG_SECONDS.set(loop_lag_seconds, worker=self._label)
        for topic, count in in_flight.items():
            metrics.WORKER_IN_WORK.set(count.in_work, worker=self._label, topic=topic)
        return WorkerState(
            host=self._host,
            pid=os.getpid(),
            roles=self._roles,
            version=self._version,
            started_at=self._started_at,
            in_work={topic: count.in_work for topic, count in in_flight.items()},
            in_flight={topic: count.in_flight for topic, count in in_flight.items()},
            circuits=[dataclasses.asdict(circuit) for circuit in circuits],
            memory_bytes=memory,
            loop_lag_s=round(loop_lag_seconds, 3),
            transport={} if self._app is None else self._app.counts(),
            metrics={name: round(value, 4) for name, value in metrics.snapshot().items()},
        )

    async def _beat(self) -> None:
        state = self.state
        is_busy = any(state.in_flight.values())
        if self._was_busy and not is_busy:
            return_memory()
        self._was_busy = is_busy
        await self._heartbeats.beat(self._name, vars(state))

    async def _try(self, action: Callable[[], Awaitable[None]]) -> None:
        try:
            await action()
        except Exception as error:  # noqa: BLE001 - a failed heartbeat must not end the worker
            log.info("heartbeat.failed", error=str(error))


def _version() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "unknown"
