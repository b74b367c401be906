"""Limit on the wait for workers that make no progress, and the reason for the stall."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from events.client.operator_client import OperatorClient
from events.heartbeats import Heartbeat
from gateway.status.warnings import SILENT_SECONDS
from runtime import metrics
from runtime.errors import ConfigurationError, Unavailable

__all__ = ["StallDetector"]

_WITHOUT_WORKER = timedelta(minutes=1)
_WITHOUT_PROGRESS = timedelta(minutes=10)
_WORK_METRICS = (metrics.CHANGES, metrics.CHUNKS_EMBEDDED)


@dataclass(frozen=True)
class _Progress:
    """Snapshot of the workers' progress; ``counters`` changes whenever something was done."""

    counters: tuple[object, ...]
    workers: Sequence[Heartbeat]
    is_allowed: bool = True


class StallDetector:
    """Watches the workers while no outcomes arrive.

    Args:
        client: client of the deployment.
        without_worker: longest wait if no worker sends heartbeats.
        without_progress: longest wait if workers send heartbeats, but nothing is done.
    """

    def __init__(
        self,
        client: OperatorClient,
        without_worker: timedelta = _WITHOUT_WORKER,
        without_progress: timedelta = _WITHOUT_PROGRESS,
    ) -> None:
        self._client = client
        self._without_worker = without_worker.total_seconds()
        self._without_progress = without_progress.total_seconds()
        self._last_counters: tuple[object, ...] | None = None
        self._progressed_at = asyncio.get_running_loop().time()

    def restart(self) -> None:
        """Restart the wait, because an outcome has arrived."""
        self._progressed_at = asyncio.get_running_loop().time()

    async def check(self, waiting: int, role: str) -> None:
        """Check for progress while changes wait for workers of a role.

        Raises:
            Unavailable: there was no progress for too long; the message gives the reason.
        """
        progress = await self._read_progress(role)
        if progress.counters != self._last_counters:
            self._last_counters = progress.counters
            self.restart()
            return
        idle_seconds = asyncio.get_running_loop().time() - self._progressed_at
        has_no_worker = progress.is_allowed and not progress.workers
        if idle_seconds > (self._without_worker if has_no_worker else self._without_progress):
            reason, remedy = _reason(progress, role, idle_seconds)
            raise Unavailable(f"{waiting:,} changes wait in the log: {reason}", remedy)

    async def _read_progress(self, role: str) -> _Progress:
        try:
            heartbeats = await self._client.heartbeats()
            cursors = await self._client.cursors()
        except ConfigurationError:
            return _Progress((), (), is_allowed=False)
        reachable = [beat for beat in heartbeats if beat.age.total_seconds() <= SILENT_SECONDS]
        finished = tuple(sorted((beat.worker, _finished(beat.state)) for beat in reachable))
        workers = [beat for beat in reachable if role in (beat.state.get("roles") or ())]
        return _Progress((cursors, finished), workers)


def _finished(state: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Counters that increase only when a worker finishes something."""
    values: Mapping[str, float] = state.get("metrics") or {}
    transport: Mapping[str, int] = state.get("transport") or {}
    counts = [(metric.name, metric.total_in(values)) for metric in _WORK_METRICS]
    return (*counts, ("acknowledged", float(transport.get("acknowledged", 0))))


def _reason(progress: _Progress, role: str, idle_seconds: float) -> tuple[str, str]:
    """Return the reason for a stall, and the remedy."""
    if not progress.is_allowed:
        return (
            f"no outcome arrived for {idle_seconds:.0f} s, and heartbeats are not readable",
            "run `headrace access` again, or `headrace status` as another user",
        )
    for heartbeat in progress.workers:
        for circuit in heartbeat.state.get("circuits") or ():
            if circuit["state"] != "closed":
                reason = f" ({circuit['reason']})" if circuit["reason"] else ""
                model = f"model {circuit['model']} is down{reason}"
                return model, "`headrace status` shows its state"
    for heartbeat in progress.workers:
        work = {
            topic: count for topic, count in (heartbeat.state.get("in_work") or {}).items() if count
        }
        if work:
            events = ", ".join(f"{count:,} of {topic}" for topic, count in sorted(work.items()))
            name = f"{heartbeat.state.get('host', '?')}:{heartbeat.state.get('pid', '?')}"
            return f"worker {name} has had {events} in work for {idle_seconds:.0f} s", "see its log"
    if progress.workers:
        stall = f"workers run, but have done nothing for {idle_seconds:.0f} s"
        return stall, "run `headrace doctor`"
    return (
        f"no worker ({role}) has sent a heartbeat for {idle_seconds:.0f} s",
        "start `headrace up` or `headrace worker`",
    )
