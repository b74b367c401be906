"""Kills of a worker at each named point of its pipelines: another takes over in time."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable

import pytest

from runtime.failpoints import WORKER_POINTS
from tests.chaos.replays import Strike
from tests.chaos.runs import Chaos
from tests.chaos.seeds import seeds
from tests.chaos.takeovers import taken_over
from tests.support.waiting import patience

POINTS = os.environ.get("HEADRACE_TEST_POINTS", ",".join(WORKER_POINTS)).split(",")
LONGEST_TAKEOVER_SECONDS = 15.0
MOST_PASSES = {"indexing": 4, "embedding": 3, "answering": 3}
Note = Callable[[str, object], None]


@pytest.mark.parametrize("seed", seeds())
async def test_work_of_a_killed_worker_is_taken_over(
    chaos: Chaos, seed: int, record_property: Note
) -> None:
    """I1 to I5 hold after a kill at each point under traffic, within the default lease's limit."""
    runs = [_killed_at(chaos, point, seed, record_property) for point in POINTS]
    results = await asyncio.gather(*runs, return_exceptions=True)
    errors = [one for one in results if isinstance(one, Exception)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(f"{len(errors)} of {len(POINTS)} points", errors)


async def _killed_at(chaos: Chaos, point: str, seed: int, note: Note) -> None:
    passes = random.Random(f"{point} {seed}").randint(1, MOST_PASSES[point.partition(".")[0]])
    async with chaos(seed, scenario=f"kill -9 at pass {passes} of {point}") as run:
        _, victim = await asyncio.gather(run.worker(), run.worker(strike=Strike(point, passes)))
        async with run.load.running(changes_per_second=16, questions_per_second=4):
            await victim.ended()
        seconds = await taken_over(run, victim)
        note("takeover_seconds", round(seconds, 3))
        await run.verify()
        assert seconds <= patience(LONGEST_TAKEOVER_SECONDS)
