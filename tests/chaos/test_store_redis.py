"""Faults of Redis: crash, power loss, flush and full disk.

At most the losses that the runbook describes may occur.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import cycle, islice

import pytest
from redis.asyncio import Redis

from events.client.client import Client
from events.client.republisher import Republishing
from events.names import Lane
from events.streams.entries import order
from processors.archiving.outbox_relay import OutboxRelay
from processors.embedders.hash_embedder import HASHING_MODEL
from store.generations.catalog import Projects, Recipe
from store.outbox import PostgresOutbox
from store.postgres.pool import Database
from tests.chaos.load import PROJECTS
from tests.chaos.logbook import Published
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds, size
from tests.chaos.verifier import Allowances
from tests.support.crashable_redis import CrashableRedis, redis_binaries
from tests.support.small_disk import fill, small_disk
from tests.support.waiting import eventually

SOME = size(15, thorough=40)
"""Number of changes that show progress."""
DURABLE = 6
REFUSALS = 30
DISK_MB = 64
ROOM_KB = 64
FAST = {
    "changes_per_second": size(50, thorough=120),
    "questions_per_second": size(10, thorough=15),
}


Strike = Callable[["Disaster"], Awaitable[None]]


@dataclass
class Disaster:
    """Fault of a Redis server, and the entries that were safe before it.

    Workers are stopped before the fault, or continue and handle entries that will be lost; the
    seed's parity decides.
    """

    run: Run
    redis: CrashableRedis
    strike: Strike
    safe_bytes: int = field(init=False)
    safe_until_ms: int = field(init=False)
    durable_bytes: int = field(init=False)
    durable: list[Published] = field(default_factory=list)
    republished: int = 0

    @property
    def halts_workers(self) -> bool:
        """True if workers are stopped, so that no entry that may be lost is handled before."""
        return (self.run.seed % 2 == 0) != (self.strike is Disaster.crash)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all workers."""
        for worker in self.run.workers:
            worker.send(number)

    async def approach(self) -> None:
        """Note the safe end of the log; later entries may be lost."""
        if self.halts_workers:
            self.send(signal.SIGSTOP)
        self.safe_until_ms = await _now_ms(self.run.redis)
        await eventually(lambda: _is_written(self.run.redis), "the log has all commands")
        self.safe_bytes = self.redis.log.stat().st_size

    async def crash(self) -> None:
        """Kill the process; the kernel keeps its writes."""
        self.redis.kill()
        await self.redis.start()

    async def lose_power(self) -> None:
        """Truncate the log, as after a power loss, and restart.

        Everything up to the safe end is kept, and the last durable change is lost.
        """
        self.redis.kill()
        end = random.Random(self.run.seed).randint(self.safe_bytes, self.durable_bytes)
        os.truncate(self.redis.log, end)
        await self.redis.start()

    async def flush(self) -> None:
        """Run FLUSHALL, after which no earlier entry is safe."""
        await self.run.redis.flushall()
        self.safe_until_ms = await _now_ms(self.run.redis)

    def is_safe(self, token_or_id: str) -> bool:
        """True if the entry was on the disk before the fault."""
        return order(token_or_id.rpartition(":")[2])[0] < self.safe_until_ms


@pytest.mark.parametrize("seed", seeds())
@pytest.mark.parametrize("strike", [Disaster.crash, Disaster.lose_power])
async def test_at_most_the_end_of_the_log_is_lost(
    chaos: Chaos, own_redis: CrashableRedis, strike: Strike, seed: int
) -> None:
    """Synced changes and questions are handled; later changes may be lost unless durable."""
    async with chaos(seed, scenario=strike.__name__, redis_url=own_redis.url) as run:
        disaster = Disaster(run, own_redis, strike)
        await _struck(disaster)
        assert disaster.republished or strike is Disaster.crash or not disaster.halts_workers
        lost = {
            one.position.token
            for one in run.logbook.acknowledged
            if one not in disaster.durable and not disaster.is_safe(one.position.token)
        }
        await run.verify(Allowances(lost=lost, lost_questions=True, lost_outcomes=True))
        kept = [one for one in run.logbook.questions if disaster.is_safe(one.entry_ids[0])]
        assert kept
        assert not run.replies.unanswered(kept)


@pytest.mark.parametrize("seed", seeds())
async def test_a_flush_in_mid_run(chaos: Chaos, own_redis: CrashableRedis, seed: int) -> None:
    """After a flush, durable and later changes are handled; others may be lost."""
    async with chaos(seed, scenario="flush", redis_url=own_redis.url) as run:
        disaster = Disaster(run, own_redis, Disaster.flush)
        await _struck(disaster)
        assert disaster.republished == DURABLE or not disaster.halts_workers
        lost = {
            one.position.token
            for one in run.logbook.acknowledged
            if one not in disaster.durable and disaster.is_safe(one.position.token)
        }
        await run.verify(Allowances(lost=lost, lost_questions=True, lost_outcomes=True))
        later = [one for one in run.logbook.questions if not disaster.is_safe(one.entry_ids[0])]
        assert later
        assert not run.replies.unanswered(later)


@pytest.mark.parametrize("seed", seeds())
async def test_a_full_disk(chaos: Chaos, seed: int) -> None:
    """No acknowledged change is lost while Redis refuses writes, and the worker keeps running."""
    with small_disk(DISK_MB) as disk:
        server = CrashableRedis(redis_binaries()[-1], disk, fsync="everysec")
        await server.start()
        try:
            async with chaos(seed, scenario="full disk", redis_url=server.url) as run:
                worker = await run.worker()
                async with run.load.running(**FAST):
                    await _more_acknowledged(run)
                    with fill(disk, ROOM_KB):
                        await eventually(
                            lambda: _refused(run.redis, REFUSALS), "writes are refused", timeout=30
                        )
                    await _more_acknowledged(run)
                await run.answered()
                await run.verify()
                assert worker.is_running
        finally:
            server.kill()


async def _struck(disaster: Disaster) -> None:
    """Run traffic before, during and after a fault, with durable changes just before it.

    Lost durable changes are published again before stopped workers continue, since their own relay
    would do the same.
    """
    run = disaster.run
    database = await Database.open(run.database.worker_url)
    outbox = PostgresOutbox(database, Projects(database, Recipe(HASHING_MODEL)))
    try:
        await run.worker()
        async with run.load.running(**FAST):
            await _more_acknowledged(run)
            await disaster.approach()
            disaster.durable += await _publish_durably(run, outbox, DURABLE - 1)
            disaster.durable_bytes = disaster.redis.log.stat().st_size
            disaster.durable += await _publish_durably(run, outbox, 1)
            await _more_acknowledged(run)
            await disaster.strike(disaster)
            await _more_acknowledged(run)
            republishing = Republishing(run.redis, run.names)
            outbox_relay = OutboxRelay(republishing, outbox, age=timedelta())
            disaster.republished = await outbox_relay.run_once()
            disaster.send(signal.SIGCONT)
            await _more_acknowledged(run)
    finally:
        await database.close()


async def _publish_durably(run: Run, outbox: PostgresOutbox, count: int) -> list[Published]:
    """Publish changes durably, as `publish --durable` does."""
    url = run.environment["HEADRACE_REDIS_URL"]
    durable = []
    async with Client.connect(url, prefix=run.names.prefix, outbox=outbox) as client:
        for project in islice(cycle(PROJECTS), count):
            [event] = run.load.journals[project].changes(1)
            entry = run.logbook.publishing(event, Lane.LIVE)
            entry.receipt = await client.publish(event, durable=True)
            durable.append(entry)
    return durable


async def _more_acknowledged(run: Run) -> None:
    enough = len(run.logbook.acknowledged) + SOME
    await eventually(
        lambda: len(run.logbook.acknowledged) >= enough, "publishing continues", timeout=40
    )


async def _refused(redis: Redis, times: int) -> bool:
    """True if at least ``times`` writes were refused because of the disk."""
    errors = await redis.info("errorstats")
    return bool(errors.get("errorstat_MISCONF", {}).get("count", 0) >= times)


async def _is_written(redis: Redis) -> bool:
    """True if no command waits for its write, which Redis delays while the disk is busy."""
    persistence = await redis.info("persistence")
    return bool(persistence["aof_buffer_length"] == 0)


async def _now_ms(redis: Redis) -> int:
    seconds, microseconds = await redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000
