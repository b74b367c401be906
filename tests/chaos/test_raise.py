"""The number of partitions is raised under load, and a worker is killed at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from events.deployment import follow_stamp
from processors.deployment import raise_partitions
from runtime.settings import Settings
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds, size
from tests.chaos.takeovers import taken_over
from tests.support.waiting import eventually, patience
from tests.support.writes import opened

PARTITIONS = 16
CHANGES_PER_SECOND = size(16, thorough=32)
LONGEST_TAKEOVER_SECONDS = 15.0
Note = Callable[[str, object], None]


@pytest.mark.parametrize("seed", seeds())
async def test_a_raise_under_load_and_a_kill_lose_nothing(
    chaos: Chaos, seed: int, record_property: Note
) -> None:
    """The index is the fold of the log, each question has one reply, and it is quiet soon after."""
    async with chaos(seed, scenario=f"raise to {PARTITIONS}, then kill -9") as run:
        victim, _ = await asyncio.gather(run.worker(), run.worker())
        async with run.load.running(changes_per_second=CHANGES_PER_SECOND, questions_per_second=4):
            await _published(run, 24)
            await asyncio.gather(_raise(run), victim.kill())
            await follow_stamp(run.redis, run.names)
            seconds = await taken_over(run, victim)
            await _published(run, 24)
        record_property("takeover_seconds", round(seconds, 3))
        await run.verify()
        assert seconds <= patience(LONGEST_TAKEOVER_SECONDS)
        used = {receipt.token.split(":")[1] for receipt in run.logbook.receipts}
        assert len(used) > PARTITIONS / 2


async def _raise(run: Run) -> None:
    settings = Settings(stream_prefix=run.names.prefix, partitions=PARTITIONS)
    async with opened(run.database.operator_url) as operator:
        await raise_partitions(run.redis, operator, settings)


async def _published(run: Run, more: int) -> None:
    """Wait until so many more changes are acknowledged."""
    goal = len(run.logbook.receipts) + more
    await eventually(lambda: len(run.logbook.receipts) >= goal, "changes are published", timeout=60)
