"""Limit on waiting for workers: as long as there is progress; then an error with the reason."""

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

__all__ = ["Patience"]

_WITHOUT_WORKER = timedelta(minutes=1)
_WITHOUT_MOVEMENT = timedelta(minutes=10)
_WORK = (metrics.DOCUMENTS, metrics.CHUNKS_EMBEDDED)


@dataclass(frozen=True)
class _Snapshot:
    """Snapshot of the workers' progress; ``moves`` changes whenever something was done."""

    moves: tuple[object, ...]
    workers: Sequence[Heartbeat]
    is_allowed: bool = True


class Patience:
    """Watches the workers while no outcomes arrive.

    Args:
        client: client of the deployment.
        without_worker: longest wait if no worker sends heartbeats.
        without_movement: longest wait if workers send heartbeats, but nothing is done.
    """

    def __init__(
        self,
        client: OperatorClient,
        without_worker: timedelta = _WITHOUT_WORKER,
        without_movement: timedelta = _WITHOUT_MOVEMENT,
    ) -> None:
        self._client = client
        self._without_worker = without_worker.total_seconds()
        self._without_movement = without_movement.total_seconds()
        self._seen: tuple[object, ...] | None = None
        self._moved_at = asyncio.get_running_loop().time()

    def moved(self) -> None:
        """Restart the wait, because an outcome has arrived."""
        self._moved_at = asyncio.get_running_loop().time()

    async def check(self, waiting: int, role: str) -> None:
        """Check for progress while changes wait for workers of a role.

        Raises:
            Unavailable: there was no progress for too long; the message gives the reason.
        """
        snapshot = await self._snapshot(role)
        if snapshot.moves != self._seen:
            self._seen = snapshot.moves
            self.moved()
            return
        still = asyncio.get_running_loop().time() - self._moved_at
        is_alone = snapshot.is_allowed and not snapshot.workers
        if still > (self._without_worker if is_alone else self._without_movement):
            reason, remedy = _reason(snapshot, role, still)
            raise Unavailable(f"{waiting:,} changes wait in the log: {reason}", remedy)

    async def _snapshot(self, role: str) -> _Snapshot:
        try:
            beats = await self._client.heartbeats()
            cursors = await self._client.cursors()
        except ConfigurationError:
            return _Snapshot((), (), is_allowed=False)
        alive = [beat for beat in beats if beat.age.total_seconds() <= SILENT_SECONDS]
        done = tuple(sorted((beat.worker, _done(beat.state)) for beat in alive))
        workers = [beat for beat in alive if role in (beat.state.get("roles") or ())]
        return _Snapshot((cursors, done), workers)


def _done(state: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """Counters that increase only when a worker finishes something."""
    values: Mapping[str, float] = state.get("metrics") or {}
    transport: Mapping[str, int] = state.get("transport") or {}
    counts = [(metric.name, sum(metric.values_in(values).values())) for metric in _WORK]
    return (*counts, ("acknowledged", float(transport.get("acknowledged", 0))))


def _reason(snapshot: _Snapshot, role: str, still: float) -> tuple[str, str]:
    """Return the reason for a standstill of ``still`` seconds, and the remedy."""
    if not snapshot.is_allowed:
        return (
            f"no outcome arrived for {still:.0f} s, and this Redis user may not read heartbeats",
            "run `headrace access` again, or `headrace status` as another user",
        )
    for beat in snapshot.workers:
        for circuit in beat.state.get("circuits") or ():
            if circuit["state"] != "closed":
                why = f" ({circuit['reason']})" if circuit["reason"] else ""
                return f"model {circuit['model']} is down{why}", "`headrace status` shows its state"
    for beat in snapshot.workers:
        work = {topic: count for topic, count in (beat.state.get("in_work") or {}).items() if count}
        if work:
            events = ", ".join(f"{count:,} of {topic}" for topic, count in sorted(work.items()))
            name = f"{beat.state.get('host', '?')}:{beat.state.get('pid', '?')}"
            return f"worker {name} has had {events} in work for {still:.0f} s", "see its log"
    if snapshot.workers:
        return f"workers run, but have done nothing for {still:.0f} s", "run `headrace doctor`"
    return (
        f"no worker ({role}) has sent a heartbeat for {still:.0f} s",
        "start `headrace up` or `headrace worker`",
    )
