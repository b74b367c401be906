"""Several partitions over one connection: windows, retries, takeover and the cost of waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from faust.types import TP
from redis.asyncio import Redis

from events.names import GROUPS, Names
from events.transport.consumer_group import Group
from events.transport.reader import Roll
from events.transport.subscription import Statistics, Subscription, Window
from processors.agents import Delivery
from tests.support.crashable_redis import CrashableRedis
from tests.support.waiting import eventually, patience
from tests.support.workers import FAST, TOPIC, batches, worker_process

PARTITIONS = 16
OPTIONS = replace(FAST, partitions=PARTITIONS)
NAMES = Names(partitions=PARTITIONS)
STREAMS = [NAMES.stream(TOPIC, partition) for partition in range(PARTITIONS)]
GROUP = GROUPS[TOPIC]


class Recorder:
    """Handler that records its events; the first delivery of each fails if ``fails``."""

    def __init__(self, *, fails: bool = False) -> None:
        self.events: list[str] = []
        self._fails = fails

    async def __call__(self, batch: Sequence[Delivery[str]]) -> None:
        self.events += [delivery.event for delivery in batch]
        for delivery in batch:
            if self._fails and self.events.count(delivery.event) == 1:
                await delivery.retry(FAST.retry_delay, counted=True)


async def publish_to(redis: Redis, partition: int, *events: str) -> None:
    for event in events:
        await redis.xadd(STREAMS[partition], {"event": event})


def nothing_pending(redis: Redis) -> Callable[[], Awaitable[bool]]:
    async def condition() -> bool:
        summaries: list[Any] = [await redis.xpending(stream, GROUP) for stream in STREAMS]
        return not any(summary["pending"] for summary in summaries)

    return condition


async def test_events_of_a_killed_worker_are_taken_over_in_every_partition(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """The others read the partitions of a killed worker within lease and claim interval."""
    events = [f"event {partition}" for partition in range(PARTITIONS)]
    recorder = Recorder()
    # a busy machine may delay the renewals of a short lease
    lease = timedelta(seconds=patience(FAST.lease.total_seconds()))
    with worker_process(own_redis.url, "held", lease, PARTITIONS) as process:
        for partition, event in enumerate(events):
            await publish_to(own_client, partition, event)
        await eventually(lambda: own_client.llen("begun"), "work has begun", timeout=20)
        async with batches(own_redis.url, recorder, options=replace(OPTIONS, lease=lease)):
            await asyncio.sleep(2 * lease.total_seconds())
            assert not recorder.events  # a live worker keeps its events
            process.kill()
            killed_at = time.monotonic()
            await eventually(lambda: sorted(recorder.events) == sorted(events), "all taken over")
            took = time.monotonic() - killed_at
            await eventually(nothing_pending(own_client), "nothing pending")
    assert took < (lease + FAST.claim_interval).total_seconds() + patience(1)


async def test_a_retried_event_comes_back_in_every_partition(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A worker searches the partitions to which it has handed events back."""
    recorder = Recorder(fails=True)
    async with batches(own_redis.url, recorder, options=OPTIONS):
        for partition in (0, 5, 15):
            await publish_to(own_client, partition, f"event {partition}")
        await eventually(lambda: len(recorder.events) == 6, "each was delivered twice")
        await eventually(nothing_pending(own_client), "nothing pending")


async def test_what_a_stopped_worker_left_is_found(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A worker that ends with unfinished events in one partition stays on the roll."""

    async def stuck(_batch: Sequence[Delivery[str]]) -> None:
        await asyncio.Event().wait()

    options = replace(OPTIONS, shutdown_timeout=timedelta(milliseconds=50))
    recorder = Recorder()
    async with batches(own_redis.url, recorder, options=OPTIONS) as app:
        await eventually(app.consumer.assignment, "it reads")
        async with batches(own_redis.url, stuck, options=options) as stopping:
            await eventually(stopping.consumer.assignment, "it reads too")
            number = 0
            while not stopping.consumer.statistics.delivered:
                await publish_to(own_client, 9, f"event {number}")
                number += 1
        await eventually(lambda: len(set(recorder.events)) == number, "all arrived")
        await eventually(nothing_pending(own_client), "nothing pending")
    [left] = await own_client.xinfo_consumers(STREAMS[0], GROUP)
    assert left["name"] == stopping.consumer.name.encode()


async def test_a_window_bounds_all_partitions_together(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A stuck worker takes its window, whether one partition has many events or all have."""

    async def stuck(_batch: Sequence[Delivery[str]]) -> None:
        await asyncio.Event().wait()

    for partitions in ([3], range(PARTITIONS)):
        await own_client.flushall()
        for partition in partitions:
            await publish_to(own_client, partition, *(f"event {n}" for n in range(60)))
        async with batches(own_redis.url, stuck, max_size=8, options=OPTIONS) as app:
            window = app.prefetch[TOPIC]
            statistics = app.consumer.statistics
            await eventually(partial(_has, statistics, window // 2), "half a window")
            await asyncio.sleep(3 * FAST.claim_interval.total_seconds())
            assert statistics.delivered <= window + PARTITIONS


async def test_a_search_of_quiet_partitions_costs_the_same_for_any_number(
    own_client: Redis,
) -> None:
    """A worker reads the roll, which it has just signed, whatever the number of partitions."""
    other = _group(own_client, "other", 0)
    roll = Roll(replace(OPTIONS, lease=timedelta(minutes=1)))  # so that it signs once
    subscriptions = [_subscription(own_client, n) for n in range(PARTITIONS)]
    for subscription in subscriptions:
        await subscription.group.create()
    assert await roll.suspects(subscriptions) == subscriptions  # the first search is of all
    await own_client.xreadgroup(GROUP, "other", {other.stream: "0"})
    before = await _commands(own_client)
    assert await roll.suspects(subscriptions) == []
    assert await _commands(own_client) - before == 1


def _has(statistics: Statistics, count: int) -> bool:
    return statistics.delivered >= count


def _group(redis: Redis, consumer: str, partition: int) -> Group:
    return Group(
        redis, TP(TOPIC, partition), STREAMS[partition], "dead", GROUP, consumer, FAST.lease
    )


def _subscription(redis: Redis, partition: int) -> Subscription:
    group = _group(redis, "here", partition)
    return Subscription(
        group, Window(8), Statistics(), lambda _: None, None, timedelta(milliseconds=50)
    )


async def _commands(redis: Redis) -> int:
    statistics: Any = await redis.info("commandstats")
    return sum(row["calls"] for name, row in statistics.items() if name != "cmdstat_info")
