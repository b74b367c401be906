"""Faults of a Redis Cluster under load: a primary is killed, and a slot is moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from events.names import Topic
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds, size
from tests.support.redis_cluster import RedisCluster
from tests.support.waiting import eventually

PARTITIONS = 6
SOME = size(40, thorough=400)
"""Number of changes that show progress."""
LOAD = {
    "changes_per_second": size(40, thorough=100),
    "questions_per_second": size(3, thorough=5),
}
SETTLED_SECONDS = 30.0
Note = Callable[[str, object], None]


@pytest.mark.parametrize("seed", seeds())
async def test_killed_primary_is_replaced(
    chaos: Chaos, cluster: RedisCluster, seed: int, record_property: Note
) -> None:
    """I1 to I5 hold when a replica takes over: nothing acknowledged is lost, or applied twice."""
    async with clustered(chaos, cluster)(seed) as run:
        await asyncio.gather(run.worker(), run.worker())
        async with run.load.running(**LOAD):
            await _progress(run)
            key = run.names.stream(Topic.CHANGED_LIVE, seed % PARTITIONS)
            node = await cluster.primary_of(key)
            node.kill()

            async def is_replaced() -> bool:
                return await cluster.primary_of(key) is not node and await cluster.is_served()

            await eventually(is_replaced, "a replica has taken over", timeout=60)
            await _progress(run)
        node.start()
        await eventually(cluster.is_whole, "the cluster is whole", timeout=60)
        _note(run, record_property)
        await run.verify()


@pytest.mark.parametrize("seed", seeds())
async def test_slot_moves(
    chaos: Chaos, cluster: RedisCluster, seed: int, record_property: Note
) -> None:
    """I1 to I5 hold when slots move to other primaries: those of changes, and of questions."""
    async with clustered(chaos, cluster)(seed) as run:
        await asyncio.gather(run.worker(), run.worker())
        async with run.load.running(**LOAD):
            for topic in (Topic.CHANGED_LIVE, Topic.QUERY):
                await _progress(run)
                key = run.names.stream(topic, seed % PARTITIONS)
                source = await cluster.primary_of(key)
                others = [node for node in await cluster.primaries() if node is not source]
                await cluster.move(key, others[seed % len(others)])
            await _progress(run)
        _note(run, record_property)
        await run.verify()


def clustered(chaos: Chaos, cluster: RedisCluster) -> Chaos:
    return replace(chaos, redis_url=cluster.url, partitions=PARTITIONS)


async def _progress(run: Run) -> None:
    """Wait until more changes are acknowledged, and more questions asked."""
    changes = len(run.logbook.acknowledged) + SOME

    def is_reached() -> bool:
        return len(run.logbook.acknowledged) >= changes

    await eventually(is_reached, f"{changes} changes are published", timeout=90)


def _note(run: Run, note: Note) -> None:
    note("changes", len(run.logbook.acknowledged))
    note("questions", len(run.logbook.questions))
    note("refused_calls", sum(len(change.refusals) for change in run.logbook.published))
