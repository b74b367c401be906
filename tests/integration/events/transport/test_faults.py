"""Transport after dead workers, lost connections and lost data, on real Redis."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from events.names import GROUPS
from events.transport import reader
from events.transport.consumer import Consumer
from events.transport.reader import WORKER_LOST
from processors.agents import Delivery
from tests.support.crashable_redis import CrashableRedis
from tests.support.waiting import eventually, patience, within
from tests.support.workers import (
    FAST,
    STREAM,
    TOPIC,
    batches,
    letters,
    letters_are,
    nothing_pending,
    pending,
    publish,
    worker_process,
)

GROUP = GROUPS[TOPIC]


async def applied_by(redis: Redis) -> Counter[str]:
    names: Any = await redis.lrange("applied", 0, -1)
    return Counter(name.decode() for name in names)


class Recorder:
    """Handler that records its deliveries."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery[str]] = []

    @property
    def events(self) -> list[str]:
        return [delivery.event for delivery in self.deliveries]

    async def __call__(self, batch: Sequence[Delivery[str]]) -> None:
        self.deliveries.extend(batch)


async def pend(redis: Redis, consumer: str, *, deliveries: int, idle: timedelta) -> None:
    """Make every entry pending for a consumer that no longer exists."""
    await redis.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
    reply: Any = await redis.xreadgroup(GROUP, consumer, {STREAM: ">"})
    entry_ids = [entry_id for entry_id, _ in reply[0][1]]
    milliseconds = int(idle.total_seconds() * 1000)
    await redis.xclaim(
        STREAM, GROUP, consumer, 0, entry_ids, idle=milliseconds, retrycount=deliveries, justid=True
    )


async def test_a_killed_workers_events_are_taken_over(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """Events of a killed worker are taken over within the lease and the claim interval."""
    events = [f"event {n}" for n in range(10)]
    await publish(own_client, *events)
    with worker_process(own_redis.url, "held") as process:
        await eventually(lambda: own_client.llen("begun"), "work has begun", timeout=20)
        process.kill()
        killed_at = time.monotonic()
    recorder = Recorder()
    async with batches(own_redis.url, recorder):
        await eventually(lambda: len(recorder.events) == 10, "all taken over")
        taken_over_after = time.monotonic() - killed_at
        await eventually(nothing_pending(own_client), "nothing pending")
    assert sorted(recorder.events) == events
    assert taken_over_after < (FAST.lease + FAST.claim_interval).total_seconds() + patience(1)


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_resting_worker_takes_over_events_as_soon(
    partitions: int,
    own_redis: CrashableRedis,
    own_client: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker whose reads wait for many leases takes over as one whose reads are short."""
    monkeypatch.setattr(reader, "_IDLE_AFTER", timedelta())
    recorder = Recorder()
    options = replace(FAST, partitions=partitions)
    async with batches(own_redis.url, recorder, options=options) as app:
        [reading] = cast("Consumer", app.consumer)._readers
        [entry_id] = await publish(own_client, "event")
        await eventually(lambda: recorder.events and reading.is_resting, "the reader rests")
        await own_client.xclaim(STREAM, GROUP, "dead", 0, [entry_id], force=True)
        claimed_at = time.monotonic()
        await eventually(lambda: len(recorder.events) == 2, "taken over")
        taken_over_after = time.monotonic() - claimed_at
    assert taken_over_after < (2 * FAST.lease + FAST.claim_interval).total_seconds() + patience(1)


async def test_an_event_that_kills_its_workers_harms_no_other(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """An event that kills its workers becomes a dead letter, and its neighbours do not."""
    await publish(own_client, *(f"event {n}" for n in range(5)), "event poison")
    await publish(own_client, *(f"event {n}" for n in range(5, 10)))
    for _ in range(FAST.max_deliveries):
        with worker_process(own_redis.url, "crash") as process:
            await asyncio.to_thread(process.wait, patience(20))
    async with batches(own_redis.url, Recorder()):
        await eventually(lambda: letters_are(own_client, 1), "one dead letter")
        await eventually(nothing_pending(own_client), "nothing pending")
    [letter] = await letters(own_client)
    assert (letter.event, letter.error) == (b"event poison", WORKER_LOST)
    assert letter.attempts == FAST.max_deliveries


async def test_too_many_deliveries_are_dead_lettered_on_takeover(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """An event without attempts left is dead-lettered and reported, and reaches no handler."""
    heard: list[str] = []

    async def on_dead(letter: Any) -> None:
        heard.append(letter.error)

    await publish(own_client, "event")
    await pend(own_client, "dead", deliveries=FAST.max_deliveries, idle=FAST.lease)
    recorder = Recorder()
    async with batches(own_redis.url, recorder, on_dead=on_dead):
        await eventually(lambda: letters_are(own_client, 1), "one dead letter")
        await eventually(nothing_pending(own_client), "nothing pending")
    assert heard == [WORKER_LOST]
    assert not recorder.events


async def test_a_live_lease_is_respected(own_redis: CrashableRedis, own_client: Redis) -> None:
    """Work that takes several leases is not taken over."""
    begun = Recorder()
    release = asyncio.Event()

    async def slow(batch: Sequence[Delivery[str]]) -> None:
        await begun(batch)
        await release.wait()

    other = Recorder()
    # a busy machine may delay this process's renewals of a short lease
    options = replace(FAST, lease=timedelta(seconds=patience(FAST.lease.total_seconds())))
    await publish(own_client, "event")
    async with batches(own_redis.url, slow, options=options):
        await eventually(lambda: begun.events, "work has begun")
        async with batches(own_redis.url, other, options=options):
            await asyncio.sleep(2 * options.lease.total_seconds())
        release.set()
        await eventually(nothing_pending(own_client), "nothing pending")
    assert begun.events == ["event"]
    assert not other.events


async def test_a_lost_lease_is_noticed(own_redis: CrashableRedis, own_client: Redis) -> None:
    """An event that another consumer has taken over is not acknowledged by its former owner."""
    release = asyncio.Event()

    async def slow(batch: Sequence[Delivery[str]]) -> None:
        await release.wait()

    # the former owner takes the event back once the lease of the thief ends
    options = replace(FAST, lease=timedelta(seconds=patience(FAST.lease.total_seconds())))
    [entry_id] = await publish(own_client, "event")
    async with batches(own_redis.url, slow, options=options) as app:
        await eventually(lambda: app.consumer.statistics.delivered, "delivered")
        await own_client.xclaim(STREAM, GROUP, "thief", 0, [entry_id], justid=True)
        await eventually(lambda: app.consumer.statistics.leases_lost, "the loss is noticed")
        release.set()
    assert await pending(own_client) == [entry_id]


async def test_a_stopped_process_is_no_thief_when_it_wakes(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A worker that was stopped past its lease does not take its events back."""
    await publish(own_client, "event")
    release = asyncio.Event()
    begun = Recorder()
    # a busy machine may delay this process's renewals of a short lease
    lease = timedelta(seconds=patience(FAST.lease.total_seconds()))

    async def slow(batch: Sequence[Delivery[str]]) -> None:
        await begun(batch)
        await release.wait()

    with worker_process(own_redis.url, "held", lease) as process:
        await eventually(lambda: own_client.llen("begun"), "work has begun", timeout=20)
        process.send_signal(signal.SIGSTOP)
        async with batches(own_redis.url, slow, options=replace(FAST, lease=lease)) as app:
            await eventually(lambda: begun.events, "taken over")
            process.send_signal(signal.SIGCONT)
            await asyncio.sleep(1.5 * lease.total_seconds())
            assert app.consumer.statistics.leases_lost == 0
            release.set()
            await eventually(nothing_pending(own_client), "nothing pending")
    assert begun.events == ["event"]


async def test_a_stop_without_redis_is_bounded(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """A stop without Redis ends in time."""
    recorder = Recorder()
    await publish(own_client, "event")
    async with within(15), batches(own_redis.url, recorder):
        await eventually(lambda: recorder.events, "the event")
        own_redis.kill()


async def test_flushall_is_survived(own_redis: CrashableRedis, own_client: Redis) -> None:
    """A flushed group is created again and counted, and later events arrive."""
    recorder = Recorder()
    async with batches(own_redis.url, recorder) as app:
        await publish(own_client, "event 1")
        await eventually(lambda: recorder.events == ["event 1"], "the first event")
        await eventually(nothing_pending(own_client), "nothing pending")
        await own_client.flushall()
        await publish(own_client, "event 2")
        await eventually(lambda: recorder.events == ["event 1", "event 2"], "the second event")
        await eventually(nothing_pending(own_client), "nothing pending")
        assert app.consumer.statistics.groups_recreated == 1


async def test_a_crash_of_redis_is_survived(own_redis: CrashableRedis, own_client: Redis) -> None:
    """Every event arrives after a crash and restart of Redis."""
    recorder = Recorder()
    events = [f"event {n}" for n in range(200)]
    async with batches(own_redis.url, recorder):
        await publish(own_client, *events[:100])
        await eventually(lambda: recorder.events, "the first events")
        own_redis.kill()
        await own_redis.start()
        await own_client.connection_pool.disconnect()
        await publish(own_client, *events[100:])
        await eventually(lambda: set(recorder.events) == set(events), "every event", timeout=20)
        await eventually(nothing_pending(own_client), "nothing pending")


async def test_redis_may_come_after_the_worker(own_redis: CrashableRedis) -> None:
    """A worker that starts before Redis waits for it."""
    own_redis.kill()
    recorder = Recorder()
    async with batches(own_redis.url, recorder):
        await own_redis.start()
        async with Redis.from_url(own_redis.url) as client:
            await publish(client, "event")
        await eventually(lambda: recorder.events == ["event"], "the event")


async def test_entries_of_a_lost_reply_are_fetched_again(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """Entries whose reply was lost are read again from the consumer's pending list."""
    await publish(own_client, "event")
    await pend(own_client, "known", deliveries=1, idle=timedelta())
    recorder = Recorder()
    options = replace(FAST, consumer="known", lease=timedelta(seconds=60))
    async with batches(own_redis.url, recorder, options=options):
        await eventually(lambda: recorder.events == ["event"], "the event, before any lease ends")


async def test_dropped_connections_lose_nothing(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """No event is lost when connections are cut repeatedly."""
    recorder = Recorder()
    events = [f"event {n}" for n in range(300)]
    async with batches(own_redis.url, recorder) as app:
        for event in events:
            await publish(own_client, event)
            if event.endswith("50"):
                await own_client.client_kill_filter(_type="normal", skipme=True)
        await eventually(lambda: set(recorder.events) == set(events), "every event", timeout=20)
        await eventually(nothing_pending(own_client), "nothing pending")
        assert app.consumer.statistics.read_errors > 0


async def test_trimmed_entries_dont_stay_pending(
    own_redis: CrashableRedis, own_client: Redis
) -> None:
    """Entries that were trimmed while pending are counted as lost."""
    await publish(own_client, "event 1", "event 2", "event 3")
    await pend(own_client, "dead", deliveries=1, idle=FAST.lease)
    await own_client.xtrim(STREAM, maxlen=1, approximate=False)
    recorder = Recorder()
    async with batches(own_redis.url, recorder) as app:
        await eventually(nothing_pending(own_client), "nothing pending")
        assert app.consumer.statistics.lost == 2
    assert recorder.events == ["event 3"]
