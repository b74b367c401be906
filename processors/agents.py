"""Agents: take events from Faust, call handlers in batches, and settle each event.

A plain Faust agent loses data: when it raises, Faust acknowledges the event anyway. So Faust only
runs a pump that fills a queue. Tasks of this module take batches from the queue, call the handler,
and settle each event on its own:

==================================  ==============================================
handler returns                     acknowledged
``Poison``, or undecodable bytes    dead letter at once
``Retryable``, lost connections     retried after a delay, without limit
``OperatorError``                   likewise: a wrong key or schema is not the event's fault
anything else                       retried after a delay; dead letter after N attempts
task is cancelled                   given back; the attempt is not counted
==================================  ==============================================

The handler of questions raises only if the reply can't be sent, or if another worker must wait for
``min_event``. Any other error is its reply, ``query.failed``, and the question is acknowledged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, TypeVar

import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from events.names import Topic
from events.transport import App, InFlightEntry
from processors.deliveries import Deliveries, Delivery, deliveries_of
from runtime import traces
from runtime.errors import HeadraceError, OperatorError, Poison, Retryable

__all__ = ["Delivery", "batch_agent"]

log = structlog.get_logger(__name__)

E = TypeVar("E")
Decode = Callable[[bytes], E]
Wait = Callable[[], Awaitable[None]]

_SERVER_FAILURES = (
    Retryable,
    OperatorError,
    ConnectionError,
    RedisConnectionError,
    RedisTimeoutError,
)
_LONGEST_WAIT = timedelta(minutes=1)
_LEAST_PREFETCH = 32
_TRUSTED_ATTEMPTS = 2


def batch_agent(
    app: App,
    topic: Topic,
    *,
    decode: Decode[E],
    handle: Callable[[Sequence[Delivery[E]]], Awaitable[None]],
    max_size: int,
    within: timedelta,
    concurrency: int,
    wait: Wait | None = None,
) -> None:
    """Declare an agent that handles events in batches.

    A batch closes when it has ``max_size`` events or ``within`` after its first. When ``handle``
    returns, every event that is not settled yet is acknowledged. When it raises, those events
    are handled one at a time, so that only the faulty ones are dead-lettered (but a ``Retryable``
    postpones all of them at once). From its third attempt on, an event is handled alone: it may
    have crashed the previous workers, and must not affect other events. ``wait`` is awaited before
    each batch: until it returns, no batch begins, and only as many events are read as fit into the
    prefetch window.
    """
    app.prefetch[topic] = max(_LEAST_PREFETCH, 2 * max_size * concurrency)
    tasks = _AgentTasks(app, topic, decode, handle, max_size, within, concurrency, wait)
    channel = app.topic(
        app.topic_prefix + topic.value,
        value_type=bytes,
        value_serializer="raw",
        key_type=bytes,
        key_serializer="raw",
        acks=not app.over_redis,
    )
    app.add_agent(topic.value, channel, tasks.pump)


class _AgentTasks(Generic[E]):
    """Tasks of one agent: they collect batches and handle them."""

    def __init__(
        self,
        app: App,
        topic: Topic,
        decode: Decode[E],
        handle: Callable[[Sequence[Delivery[E]]], Awaitable[None]],
        max_size: int,
        within: timedelta,
        concurrency: int,
        wait: Wait | None = None,
    ) -> None:
        self._topic = topic
        self._decode = decode
        self._handle = handle
        self._max_size = max_size
        self._within = within.total_seconds()
        self._concurrency = concurrency
        self._wait = wait
        self._options = app.options
        self._deliveries: Deliveries = deliveries_of(app, topic)
        self._queue: asyncio.Queue[InFlightEntry] = asyncio.Queue(app.prefetch[topic])
        self._collecting = asyncio.Lock()
        self._quarantine = asyncio.Lock()

    async def pump(self, stream: Any) -> None:
        """Run as body of the Faust agent: never raises, never acknowledges."""
        tasks = [
            asyncio.create_task(self._work(), name=f"{self._topic} {number}")
            for number in range(self._concurrency)
        ]
        try:
            async for event in stream.noack().events():
                await self._queue.put(self._deliveries.entry_of(event.message))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            entries = await self._collect()
            if self._wait is not None:
                await self._wait()
            suspects = [entry for entry in entries if entry.attempt > _TRUSTED_ATTEMPTS]
            await self._process([entry for entry in entries if entry not in suspects])
            for suspect in suspects:
                async with self._quarantine:
                    await self._process([suspect])

    async def _collect(self) -> list[InFlightEntry]:
        """Fill a batch. Only one task does so at a time, or each would get a fraction of it."""
        async with self._collecting:
            entries = [await self._queue.get()]
            if self._max_size > 1:
                await self._fill(entries)
            return entries

    async def _fill(self, entries: list[InFlightEntry]) -> None:
        try:
            async with asyncio.timeout(self._within):
                while len(entries) < self._max_size:
                    if self._queue.empty():
                        entries.append(await self._queue.get())
                    else:
                        entries.append(self._queue.get_nowait())
        except TimeoutError:
            pass

    async def _process(self, entries: Sequence[InFlightEntry]) -> None:
        if not entries or self._deliveries.closing:
            return
        with structlog.contextvars.bound_contextvars(topic=self._topic.value):
            try:
                await self._run(await self._deliveries.open(entries, self._decode))
            except Exception:
                log.exception("agent.failed")
                self._deliveries.give_back(entries)
            except asyncio.CancelledError:
                self._deliveries.give_back(entries)
                raise

    async def _run(self, batch: Sequence[Delivery[E]]) -> None:
        if len(batch) > 1:
            await self._run_together(batch)
        for delivery in batch:
            if not delivery.settled:
                await self._run_alone(delivery)

    async def _run_together(self, batch: Sequence[Delivery[E]]) -> None:
        """Handle a whole batch; events that must be handled one at a time stay unsettled."""
        try:
            with self._span(batch):
                await self._handle(batch)
        except _SERVER_FAILURES as error:
            log.warning("batch.postponed", size=len(batch), error=str(error))
            await asyncio.gather(*(self._postpone(delivery, error) for delivery in batch))
        except Exception as error:  # noqa: BLE001 - handling one at a time shows which event fails
            log.warning("batch.failed", size=len(batch), error=repr(error))
        else:
            for delivery in batch:
                delivery.acknowledge()

    @contextmanager
    def _span(self, batch: Sequence[Delivery[E]]) -> Iterator[None]:
        """Run a block within the span of a batch, if that of any of its events is recorded.

        It belongs to the trace of the first of these, because a trace of its own might not be
        sampled. It and the spans of all of these link to each other.
        """
        spans = [delivery.span for delivery in batch if delivery.span.is_recording]
        if not spans:
            yield
            return
        with traces.span(
            f"batch {self._topic}",
            parent=spans[0],
            links=spans,
            attributes={"messaging.batch.message_count": len(batch)},
        ) as together:
            for span in spans:
                span.link(together)
            yield

    async def _run_alone(self, delivery: Delivery[E]) -> None:
        with (
            structlog.contextvars.bound_contextvars(event_id=delivery.event_id),
            traces.use(delivery.span),
        ):
            while not delivery.settled:
                try:
                    await self._handle([delivery])
                except Exception as error:  # noqa: BLE001 - an agent never raises
                    await self._fail(delivery, error)
                else:
                    delivery.acknowledge()

    async def _fail(self, delivery: Delivery[E], error: Exception) -> None:
        if delivery.settled:
            return
        delivery.span.fail(_code(error))
        if isinstance(error, _SERVER_FAILURES):
            log.warning("event.postponed", error=str(error))
            await self._postpone(delivery, error)
        elif isinstance(error, Poison) or delivery.attempts >= self._options.max_deliveries:
            await delivery.reject(_code(error), str(error) or repr(error))
        else:
            log.warning("event.failed", attempts=delivery.attempts, error=repr(error))
            await delivery.retry(self._options.retry_delay, counted=True)

    async def _postpone(self, delivery: Delivery[E], error: Exception) -> None:
        if not delivery.settled:
            delivery.span.fail(_code(error))
            delay = _requested_delay(error) or self._options.retry_delay
            await delivery.retry(delay, counted=False)


def _requested_delay(error: Exception) -> timedelta | None:
    """Return the delay that the error requests, up to a limit, or None if it requests none.

    A postponed event occupies the prefetch window: a day of ``Retry-After`` would stall the worker.
    """
    requested = error.retry_after if isinstance(error, Retryable) else None
    return None if requested is None else min(requested, _LONGEST_WAIT)


def _code(error: Exception) -> str:
    return error.code if isinstance(error, HeadraceError) else type(error).__name__
