"""Flow control: windows, isolation of topics, and stops, on real Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from redis.asyncio import Redis

from events.names import GROUPS, Names, Topic
from events.transport import App, Options, run_app
from processors.agents import Delivery, batch_agent
from tests.support.crashable_redis import CrashableRedis
from tests.support.waiting import eventually, patience
from tests.support.workers import (
    FAST,
    NAMES,
    STREAM,
    TOPIC,
    agent,
    batches,
    decode,
    nothing_pending,
    pending,
    publish,
    running,
)


async def forever(_: object) -> None:
    await asyncio.Event().wait()


async def test_a_worker_takes_no_more_than_its_window(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A worker with a stuck handler reads no more events than its window."""
    await publish(own_client, *(f"event {n}" for n in range(300)))
    async with batches(own_redis.url, forever, max_size=4) as app:
        window = app.prefetch[TOPIC]
        await eventually(lambda: app.consumer.statistics.delivered >= window, "a full window")
        await asyncio.sleep(3 * FAST.claim_interval.total_seconds())
        assert len(await pending(own_client)) == window < 300


async def test_a_stuck_bulk_handler_delays_no_query(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """Queries are answered quickly while the handler of the bulk lane is stuck."""
    app = App("test", broker=own_redis.url, options=FAST)
    bulk = NAMES.stream(Topic.CHANGED_BULK)
    for n in range(500):
        await own_client.xadd(bulk, {"event": f"event {n}"})
    batch_agent(
        app,
        Topic.CHANGED_BULK,
        decode=decode,
        handle=forever,
        max_size=64,
        within=timedelta(milliseconds=20),
        concurrency=2,
    )
    delays_s: list[float] = []

    async def answer(delivery: Delivery[str]) -> None:
        delays_s.append(time.time() - float(delivery.event.split()[1]))

    agent(app, Topic.QUERY, decode=decode, handle=answer, concurrency=16)
    async with running(app):
        window = app.prefetch[Topic.CHANGED_BULK]
        await eventually(lambda: app.consumer.statistics.delivered >= window, "a full bulk lane")
        while len(delays_s) < 50:
            asked = len(delays_s) + 1
            await own_client.xadd(NAMES.stream(Topic.QUERY), {"event": f"event {time.time()}"})
            await eventually(partial(_at_least, delays_s, asked), "the answer", every=0.002)
    assert sorted(delays_s)[25] < patience(0.05)


def _at_least(items: list[float], count: int) -> bool:
    return len(items) >= count


async def test_a_stop_gives_back_at_once_what_it_cant_finish(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A stopping worker returns unfinished events at once, without using up an attempt."""
    events = [f"event {n}" for n in range(40)]
    await publish(own_client, *events)
    options = {"shutdown_timeout": timedelta(milliseconds=100), "lease": timedelta(seconds=60)}
    slow = App("slow", broker=own_redis.url, options=_options(**options))
    stuck = asyncio.Event()

    async def stick(delivery: Delivery[str]) -> None:
        stuck.set()
        await asyncio.Event().wait()

    agent(slow, TOPIC, decode=decode, handle=stick, concurrency=2)
    async with running(slow):
        await stuck.wait()
    seen: list[Delivery[str]] = []

    async def record(batch: Sequence[Delivery[str]]) -> None:
        seen.extend(batch)

    async with batches(own_redis.url, record, options=_options(lease=timedelta(seconds=60))):
        await eventually(lambda: len(seen) >= 40, "every event", timeout=3)
        await eventually(nothing_pending(own_client), "nothing pending")
    assert sorted(delivery.event for delivery in seen) == sorted(events)
    assert {delivery.attempts for delivery in seen} == {1}


def _options(**more: Any) -> Options:
    return replace(FAST, **more)


async def test_a_stop_waits_for_work_that_has_begun(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A stop waits for work in progress and acknowledges it."""
    begun, release = asyncio.Event(), asyncio.Event()
    finished: list[str] = []

    async def handle(delivery: Delivery[str]) -> None:
        begun.set()
        await release.wait()
        finished.append(delivery.event)

    await publish(own_client, "event")
    app = App("test", broker=own_redis.url, options=FAST)
    agent(app, TOPIC, decode=decode, handle=handle, concurrency=1)
    stop = asyncio.Event()
    task = asyncio.create_task(run_app(app, stop))
    await begun.wait()
    stop.set()
    await asyncio.sleep(0.1)
    assert not task.done()
    release.set()
    await task
    assert finished == ["event"]
    assert not await pending(own_client)


async def test_a_stopped_worker_leaves_no_consumer_behind(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A stopped worker removes its consumer from the group."""
    seen: list[Delivery[str]] = []

    async def handle(batch: Sequence[Delivery[str]]) -> None:
        seen.extend(batch)

    await publish(own_client, "event")
    async with batches(own_redis.url, handle) as app:
        await eventually(lambda: seen, "the event")
        [consumer] = await _consumers(own_client)
        assert consumer["name"] == app.consumer.name.encode()
    assert not await _consumers(own_client)


async def _consumers(redis: Redis) -> list[Any]:
    return list(await redis.xinfo_consumers(STREAM, GROUPS[TOPIC]))


async def test_consumers_of_dead_workers_are_forgotten(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """An idle consumer is removed; one with pending entries stays."""
    group = GROUPS[TOPIC]
    await own_client.xgroup_create(STREAM, group, id="0", mkstream=True)
    await publish(own_client, "event")
    await own_client.xgroup_createconsumer(STREAM, group, "idle")
    await own_client.xreadgroup(group, "owing", {STREAM: ">"})
    options = _options(forget_consumers_after=timedelta(), lease=timedelta(seconds=60))
    async with batches(own_redis.url, forever, options=options):
        await eventually(partial(_consumers_are, own_client, [b"owing"]), "only the owing one")


async def _consumers_are(redis: Redis, names: list[bytes]) -> bool:
    return [consumer["name"] for consumer in await _consumers(redis)] == names


async def test_every_partition_is_read(own_redis: CrashableRedis, own_client: Redis) -> None:
    """Prefix and partitions from the broker URL are used for reading."""
    names = Names("kb", 3)
    for partition in range(3):
        await own_client.xadd(names.stream(TOPIC, partition), {"event": f"event {partition}"})
    seen: list[Delivery[str]] = []

    async def handle(delivery: Delivery[str]) -> None:
        seen.append(delivery)

    app = App("test", broker=f"{own_redis.url}?prefix=kb&partitions=3")
    agent(app, TOPIC, decode=decode, handle=handle, concurrency=1)
    async with running(app):
        await eventually(lambda: len(seen) == 3, "one event of each partition")
    assert {(delivery.partition, delivery.event) for delivery in seen} == {
        (n, f"event {n}") for n in range(3)
    }
