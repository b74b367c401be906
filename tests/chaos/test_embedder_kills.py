"""Random kills of indexers and embedders: every chunk gets its vector."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.chaos.fleet import Worker
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds, size
from tests.support.waiting import eventually

KILLS = 4
CHANGES_BETWEEN_KILLS = size(10, thorough=20)
MANY_DELIVERIES = "100"
"""A change may be pending during several kills, and must not be blamed for them."""
ROLES = ("indexer", "embedder")


@pytest.mark.parametrize("seed", seeds())
async def test_no_vector_is_lost_with_its_embedder(chaos: Chaos, seed: int) -> None:
    """Every chunk has its vector after indexers and embedders were killed at random moments."""
    scenario = f"kill -9 of {KILLS} indexers and embedders"
    async with chaos(seed, scenario=scenario, HEADRACE_MAX_DELIVERIES=MANY_DELIVERIES) as run:
        await run.worker("--only", "answerer")
        alive = {role: [await run.worker("--only", role)] for role in ROLES}
        async with run.load.running(changes_per_second=16, questions_per_second=2):
            await _kill_at_random(run, alive)
        await run.verify()


async def _kill_at_random(run: Run, alive: dict[str, list[Worker]]) -> None:
    rng = random.Random(f"embedder kills {run.seed}")
    for _ in range(KILLS):
        wanted = len(run.logbook.acknowledged) + rng.randint(1, CHANGES_BETWEEN_KILLS)
        await eventually(
            lambda wanted=wanted: len(run.logbook.acknowledged) >= wanted,  # type: ignore[misc]
            "more changes are published",
        )
        role = rng.choice(ROLES)
        victim = alive[role].pop()
        successor, _ = await asyncio.gather(run.worker("--only", role), victim.kill())
        alive[role].append(successor)
