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
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from events.names import Topic
from events.streams.dead_letters import DeadLetter
from events.transport import App, run_app
from processors.deliveries import Deliveries, Delivery, deliveries_of
from runtime.errors import HeadraceError, OperatorError, Poison, Retryable

__all__ = ["Delivery", "agent", "batch_agent", "run_worker"]

log = structlog.get_logger(__name__)

E = TypeVar("E")
Decode = Callable[[bytes], E]
OnRejected = Callable[[DeadLetter], Awaitable[None]]
Hold = Callable[[], Awaitable[None]]

_SERVER_FAILURES = (
    Retryable,
    OperatorError,
    ConnectionError,
    RedisConnectionError,
    RedisTimeoutError,
)
_LONGEST_WAIT = timedelta(minutes=1)
_LEAST_PREFETCH = 32


def batch_agent(
    app: App,
    topic: Topic,
    *,
    decode: Decode[E],
    handle: Callable[[Sequence[Delivery[E]]], Awaitable[None]],
    max_size: int,
    within: timedelta,
    concurrency: int,
    on_rejected: OnRejected | None = None,
    hold: Hold | None = None,
) -> None:
    """Declare an agent that handles events in batches.

    A batch closes when it has ``max_size`` events or ``within`` after its first. When ``handle``
    returns, every event that is not ``done()`` yet is acknowledged. When it raises, those events
    are handled one at a time, so that only the faulty ones are dead-lettered (but a ``Retryable``
    postpones all of them at once). From its third attempt on, an event is handled alone: it may
    have crashed the previous workers, and must not affect other events. ``on_rejected`` is awaited
    with each dead letter of the topic before it is stored; when it raises, the event is delivered
    again instead. ``hold`` is awaited before each batch: while it waits, no batch begins, and only
    as many events are read as fit into the prefetch window.
    """
    app.prefetch[topic] = max(_LEAST_PREFETCH, 2 * max_size * concurrency)
    if on_rejected is not None:
        app.on_rejected[topic] = on_rejected
    crew = _Crew(app, topic, decode, handle, max_size, within, concurrency, hold)
    channel = app.topic(
        topic.value,
        value_type=bytes,
        value_serializer="raw",
        key_type=bytes,
        key_serializer="raw",
        acks=not app.over_redis,
    )
    app.agent(channel, name=topic.value)(crew.pump)


def agent(
    app: App,
    topic: Topic,
    *,
    decode: Decode[E],
    handle: Callable[[Delivery[E]], Awaitable[None]],
    concurrency: int,
    on_rejected: OnRejected | None = None,
) -> None:
    """Declare an agent that handles events one at a time, ``concurrency`` of them at once."""

    async def handle_one(batch: Sequence[Delivery[E]]) -> None:
        await handle(batch[0])

    batch_agent(
        app,
        topic,
        decode=decode,
        handle=handle_one,
        max_size=1,
        within=timedelta(),
        concurrency=concurrency,
        on_rejected=on_rejected,
    )


async def run_worker(app: App, stop: asyncio.Event, ready: asyncio.Event | None = None) -> None:
    """Run all agents of an app in this event loop until ``stop`` is set.

    ``ready`` is set once agents receive events. After ``stop``, it gives back unfinished events and
    returns within the app's ``shutdown_timeout`` plus a few seconds.

    Raises:
        Unavailable: a part of the worker failed permanently. Redis outages are tolerated.
    """
    await run_app(app, stop, ready)


class _Crew(Generic[E]):
    """The tasks behind one agent."""

    def __init__(
        self,
        app: App,
        topic: Topic,
        decode: Decode[E],
        handle: Callable[[Sequence[Delivery[E]]], Awaitable[None]],
        max_size: int,
        within: timedelta,
        concurrency: int,
        hold: Hold | None = None,
    ) -> None:
        self._topic = topic
        self._decode = decode
        self._handle = handle
        self._max_size = max_size
        self._within = within.total_seconds()
        self._concurrency = concurrency
        self._hold = hold
        self._deliveries: Deliveries = deliveries_of(app, topic)
        self._queue: asyncio.Queue[Any] = asyncio.Queue(app.prefetch[topic])
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
                await self._queue.put(event.message)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            messages = await self._collect()
            if self._hold is not None:
                await self._hold()
            regular, suspect = self._deliveries.split(messages)
            await self._deal_with(regular)
            for message in suspect:
                async with self._quarantine:
                    await self._deal_with([message])

    async def _collect(self) -> list[Any]:
        """Fill a batch. Only one task does so at a time, or each would get a fraction of it."""
        async with self._collecting:
            messages = [await self._queue.get()]
            if self._max_size > 1:
                await self._fill(messages)
            return messages

    async def _fill(self, messages: list[Any]) -> None:
        try:
            async with asyncio.timeout(self._within):
                while len(messages) < self._max_size:
                    if self._queue.empty():
                        messages.append(await self._queue.get())
                    else:
                        messages.append(self._queue.get_nowait())
        except TimeoutError:
            pass

    async def _deal_with(self, messages: Sequence[Any]) -> None:
        if not messages or self._deliveries.closing:
            return
        with structlog.contextvars.bound_contextvars(topic=self._topic.value):
            try:
                await self._run(await self._deliveries.open(messages, self._decode))
            except Exception:
                log.exception("agent.failed")
                self._give_back(messages)
            except asyncio.CancelledError:
                self._give_back(messages)
                raise

    def _give_back(self, messages: Sequence[Any]) -> None:
        """Return messages to the broker; those that are settled stay settled."""
        for message in messages:
            self._deliveries.give_back(message)

    async def _run(self, batch: Sequence[Delivery[E]]) -> None:
        if len(batch) > 1:
            await self._run_together(batch)
        for delivery in batch:
            if not delivery.settled:
                await self._run_alone(delivery)

    async def _run_together(self, batch: Sequence[Delivery[E]]) -> None:
        """Handle a whole batch; events that must be handled one at a time stay unsettled."""
        try:
            await self._handle(batch)
        except _SERVER_FAILURES as error:
            log.warning("batch.postponed", size=len(batch), error=str(error))
            await asyncio.gather(*(self._postpone(delivery, error) for delivery in batch))
        except Exception as error:  # noqa: BLE001 - handling one at a time shows which event fails
            log.warning("batch.failed", size=len(batch), error=repr(error))
        else:
            for delivery in batch:
                delivery.done()

    async def _run_alone(self, delivery: Delivery[E]) -> None:
        with structlog.contextvars.bound_contextvars(event_id=delivery.event_id):
            while not delivery.settled:
                try:
                    await self._handle([delivery])
                except Exception as error:  # noqa: BLE001 - an agent never raises
                    await self._fail(delivery, error)
                else:
                    delivery.done()

    async def _fail(self, delivery: Delivery[E], error: Exception) -> None:
        if delivery.settled:
            return
        if isinstance(error, _SERVER_FAILURES):
            log.warning("event.postponed", error=str(error))
            await self._postpone(delivery, error)
        elif isinstance(error, Poison) or delivery.attempts >= self._deliveries.most_attempts:
            await self._deliveries.reject(delivery, _code(error), str(error) or repr(error))
        else:
            log.warning("event.failed", attempts=delivery.attempts, error=repr(error))
            await self._deliveries.retry(delivery, None, counted=True)

    async def _postpone(self, delivery: Delivery[E], error: Exception) -> None:
        if not delivery.settled:
            await self._deliveries.retry(delivery, _asked_wait(error), counted=False)


def _asked_wait(error: Exception) -> timedelta | None:
    """Return the delay that the error asks for, up to a limit, or None if it asks for none.

    A postponed event occupies the prefetch window: a day of ``Retry-After`` would stall the worker.
    """
    asked = error.retry_after if isinstance(error, Retryable) else None
    return None if asked is None else min(asked, _LONGEST_WAIT)


def _code(error: Exception) -> str:
    return error.code if isinstance(error, HeadraceError) else type(error).__name__
