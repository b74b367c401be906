"""Outbox relay: publishes durable events again if they never reached the archive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from time import monotonic

import structlog
from redis.exceptions import RedisError

from events.client.republisher import Republishing, is_lost
from events.client.sender import Trace
from events.models import DocumentChanged
from events.names import LogPosition
from events.outbox import AssignedPosition, WaitingEvent
from runtime import metrics
from runtime.errors import HeadraceError, MalformedEvent
from runtime.lifespan import wait_or_stop
from store.outbox import PostgresOutbox

__all__ = ["OutboxRelay"]

log = structlog.get_logger(__name__)

AGE = timedelta(seconds=15)
"""Younger events are still being published, or are on their way into the archive."""

_LOOK_EVERY = timedelta(seconds=15)
_WHILE_INACTIVE = timedelta(seconds=1)
_REST = 10
"""Duty cycle: after a scan of the outbox, rest at least this many times as long as it took."""

_BODIES = 32

Lost = tuple[WaitingEvent, Trace]


class OutboxRelay:
    """Relay of lost events from the outbox to the streams.

    An event is lost if Redis does not have it: it was removed by a flush or a failover, or its
    publisher died before sending it. It is appended to its stream with the log position that it
    had, or probably should have had, as its asserted position, so that it overrides nothing newer.
    Publishing twice, or in two processes at once, adds nothing. An event whose id was published
    with another change was refused to its publisher, so it is dropped.
    """

    def __init__(
        self, republishing: Republishing, outbox: PostgresOutbox, *, age: timedelta = AGE
    ) -> None:
        self._republishing = republishing
        self._outbox = outbox
        self._age = age

    async def run(self, stop: asyncio.Event, is_active: Callable[[], bool] = lambda: True) -> None:
        """Scan regularly until ``stop`` is set; failures are logged, and the next scan retries."""
        while not stop.is_set():
            await wait_or_stop(stop, await self._turn() if is_active() else _WHILE_INACTIVE)

    async def _turn(self) -> timedelta:
        """Scan once; return how long to rest afterwards."""
        began = monotonic()
        try:
            await self.run_once()
        except (HeadraceError, RedisError) as error:
            log.warning("outbox.republish_failed", error=str(error))
        return max(_LOOK_EVERY, timedelta(seconds=_REST * (monotonic() - began)))

    async def run_once(self) -> int:
        """Scan the whole outbox; return how many events were published again.

        Raises:
            Unavailable: Redis or Postgres can't be reached.
            LogFull: Redis is near its memory limit.
        """
        return sum([await self._look_at(project) for project in await self._outbox.projects()])

    async def _look_at(self, project: str) -> int:
        count = 0
        after = ""
        while True:
            archived = await self._republishing.archived()
            waiting = await self._outbox.waiting(project, self._age, after=after)
            if not waiting:
                return count
            sound = [event for event in waiting if self._republishing.leads_somewhere(event)]
            count += await self._republish_lost(project, sound, archived)
            after = waiting[-1].event_id

    async def _republish_lost(
        self, project: str, waiting: Sequence[WaitingEvent], archived: Mapping[str, str]
    ) -> int:
        waiting, traces = await self._located(project, waiting)
        await self._record_positions(waiting, traces)
        lost = [pair for pair in zip(waiting, traces, strict=True) if is_lost(pair[1], archived)]
        count = 0
        for batch in _batches(lost):
            count += await self._republish(project, batch)
        return count

    async def _located(
        self, project: str, waiting: Sequence[WaitingEvent]
    ) -> tuple[Sequence[WaitingEvent], Sequence[Trace]]:
        """Return events and their records, each in the partition where it is or belongs.

        A publisher keeps an event before it learns of a raise of the number of partitions, and may
        publish it, or die, in between.
        """
        traces = await self._republishing.traces(waiting)
        unknown = [
            event.event_id
            for event, trace in zip(waiting, traces, strict=True)
            if trace.token is None and event.position is None
        ]
        if not (unknown and self._republishing.may_have_moved):
            return waiting, traces
        bodies = await self._outbox.bodies(project, unknown)
        located = [
            replace(event, partition=self._home_of(event, bodies.get(event.event_id)))
            for event in waiting
        ]
        return located, await self._republishing.traces(located)

    def _home_of(self, event: WaitingEvent, body: bytes | None) -> int:
        """Return the partition of an event's document; without a valid body, the event's own."""
        try:
            data = DocumentChanged.from_bytes(body or b"").data
        except MalformedEvent:
            return event.partition
        return self._republishing.home_of(data.project, data.uri)

    async def _record_positions(
        self, waiting: Sequence[WaitingEvent], traces: Sequence[Trace]
    ) -> None:
        """Store log positions that publishers did not store, because they died before."""
        await self._outbox.assign(
            [
                AssignedPosition(event.project, event.event_id, trace.token)
                for event, trace in zip(waiting, traces, strict=True)
                if event.position is None and trace.token is not None
            ]
        )

    async def _republish(self, project: str, lost: Sequence[Lost]) -> int:
        bodies = await self._outbox.bodies(project, [event.event_id for event, _ in lost])
        positions = await self._positions(project, lost)
        assigned: list[AssignedPosition] = []
        refused: list[tuple[bytes, bytes]] = []
        count = 0
        for event, trace in lost:
            body = bodies.get(event.event_id)
            if body is None:
                continue
            fingerprint = _fingerprint(body)
            if trace.is_of_other(fingerprint):
                log.warning("outbox.refused_event_dropped", project=project, id=event.event_id)
                refused.append((body, event.signature.encode()))
                continue
            receipt = await self._republishing.republish(
                event, body, positions[event.event_id], trace, fingerprint
            )
            assigned.append(AssignedPosition(project, event.event_id, receipt.token))
            count += not receipt.duplicate
        await self._outbox.assign(assigned)
        if refused:
            await self._outbox.drop(project, refused)
        _report(project, count)
        return count

    async def _positions(self, project: str, lost: Sequence[Lost]) -> dict[str, LogPosition]:
        """Best known log position of each event: from publisher, Redis, index or clock."""
        nowhere = [e.event_id for e, trace in lost if e.position is None and trace.token is None]
        handled = await self._outbox.handled(project, nowhere) if nowhere else {}
        positions: dict[str, LogPosition] = {}
        for event, trace in lost:
            if trace.token is not None:
                positions[event.event_id] = LogPosition.from_token(trace.token)
            elif event.event_id in handled:
                number = handled[event.event_id]
                positions[event.event_id] = LogPosition(number, event.partition)
            else:
                positions[event.event_id] = event.log_position
        return positions


def _fingerprint(body: bytes) -> str:
    """Fingerprint of a kept event; empty if a publisher stored something else."""
    try:
        return DocumentChanged.from_bytes(body).data.fingerprint()
    except MalformedEvent:
        return ""


def _batches(lost: Sequence[Lost]) -> Iterator[Sequence[Lost]]:
    for start in range(0, len(lost), _BODIES):
        yield lost[start : start + _BODIES]


def _report(project: str, count: int) -> None:
    if count:
        metrics.CHANGES_REPUBLISHED.inc(count)
        log.warning("outbox.republished", project=project, events=count)
