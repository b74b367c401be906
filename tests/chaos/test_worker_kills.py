"""Kills of a worker at each named point of its pipelines: another takes over in time."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest

import pytest

from runtime.failpoints import WORKER_POINTS
from tests.chaos.replays import Strike
from tests.chaos.runs import Chaos
from tests.chaos.seeds import seeds, size
from tests.chaos.takeovers import taken_over
from tests.support.redis_cluster import RedisCluster
from tests.support.waiting import patience

POINTS = os.environ.get("HEADRACE_TEST_POINTS", ",".join(WORKER_POINTS)).split(",")
LONGEST_TAKEOVER_SECONDS = 15.0
CHANGES_PER_SECOND = size(16, thorough=32)
MOST_PASSES = {"indexing": 4, "embedding": 3, "answering": 3}
Note = Callable[[str, object], None]


@pytest.mark.parametrize("seed", seeds())
async def test_work_of_a_killed_worker_is_taken_over(
    chaos: Chaos, seed: int, record_property: Note
) -> None:
    """I1 to I5 hold after a kill at each point under traffic, within the default lease's limit.

    A run has a victim in each pipeline, and a worker that survives.
    """
    runs = [_killed_at(chaos, points, seed, record_property) for points in _one_of_each_pipeline()]
    results = await asyncio.gather(*runs, return_exceptions=True)
    errors = [error for error in results if isinstance(error, Exception)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(runs)} runs", errors)


@pytest.mark.parametrize("seed", seeds())
async def test_work_on_a_cluster_is_taken_over(
    chaos: Chaos, cluster: RedisCluster, seed: int, record_property: Note
) -> None:
    """The same holds on a Redis Cluster; each seed kills at one point of each pipeline."""
    groups = _one_of_each_pipeline()
    on_cluster = replace(chaos, redis_url=cluster.url, partitions=6)
    await _killed_at(on_cluster, groups[seed % len(groups)], seed, record_property)


def _one_of_each_pipeline() -> list[list[str]]:
    """Points in groups, each with at most one point of a pipeline."""
    pipelines = [[*points] for _, points in groupby(POINTS, key=_pipeline)]
    return [[point for point in group if point] for group in zip_longest(*pipelines)]


def _pipeline(point: str) -> str:
    return point.partition(".")[0]


async def _killed_at(chaos: Chaos, points: Sequence[str], seed: int, note: Note) -> None:
    strikes = [
        Strike(point, random.Random(f"{point} {seed}").randint(1, MOST_PASSES[_pipeline(point)]))
        for point in points
    ]
    async with chaos(seed, scenario=f"kill -9 at {strikes}") as run:
        _, *victims = await asyncio.gather(
            run.worker(), *(run.worker(strike=strike) for strike in strikes)
        )
        async with run.load.running(changes_per_second=CHANGES_PER_SECOND, questions_per_second=6):
            taken = [asyncio.create_task(taken_over(run, victim)) for victim in victims]
            for victim in victims:
                await victim.ended()
        seconds = await asyncio.gather(*taken)
        for figure in seconds:
            note("takeover_seconds", round(figure, 3))
        await run.verify()
        assert max(seconds) <= patience(LONGEST_TAKEOVER_SECONDS)
