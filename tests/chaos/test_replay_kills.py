"""Kills of a replay, or of Postgres, at each named point: the live index stays whole.

``HEADRACE_TEST_SEEDS=10`` runs as many seeds; the test's parameter names a failing one. Without it,
Postgres is killed at every second point.
"""

from __future__ import annotations

import os
import random

import pytest

from bench.traffic import Traffic, under_traffic
from runtime.embedded import EmbeddedPostgres
from runtime.errors import Unavailable
from runtime.failpoints import REPLAY_POINTS
from tests.chaos.journal import Journal
from tests.chaos.replays import Strike
from tests.chaos.seeds import SEEDS_VARIABLE, seeds, size
from tests.chaos.staging import Stage
from tests.support.waiting import eventually

SEEDS = seeds()
POSTGRES_POINTS = REPLAY_POINTS if SEEDS_VARIABLE in os.environ else REPLAY_POINTS[::2]
DOCUMENTS = 100
FEW_DOCUMENTS = size(40, thorough=100)
"""Documents of a replay that passes a point once."""
MOST_PASSES = {"replay.building": 4, "replay.catching_up": 2, "replay.dropping": 10}
CHANGES_PER_SECOND = 5.0
QUESTIONS_PER_SECOND = size(5, thorough=10)
RECIPE = "1:96"
UNFINISHED = ("generation.unfinished", "generation.dropping")
TOLD = ("Postgres can't be reached", "its connection to Postgres broke")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("point", REPLAY_POINTS)
async def test_a_killed_replay_leaves_the_live_index_whole(
    stage: Stage, point: str, seed: int
) -> None:
    """No question fails and no change is lost if a replay is killed; a second try succeeds."""
    journal, strike = _drawn(point, seed)
    await stage.fill(journal, DOCUMENTS if point in MOST_PASSES else FEW_DOCUMENTS)
    command = await _command(stage, journal, point)
    async with under_traffic(_traffic(stage, journal)) as traffic:
        await stage.replays.killed(*command, strike=strike)
    assert (traffic.failures, traffic.unseen) == ([], [])
    await stage.assert_settles_whole(journal, traffic.receipts, *UNFINISHED)
    await _assert_second_try_finishes(stage, journal, command)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("point", POSTGRES_POINTS)
async def test_a_killed_postgres_leaves_the_live_index_whole(
    stage: Stage, breakable_postgres: EmbeddedPostgres, point: str, seed: int
) -> None:
    """No change is lost when Postgres is killed under a replay, and a second try succeeds."""
    journal, strike = _drawn(point, seed, breakable_postgres.pid)
    await stage.fill(journal, DOCUMENTS if point in MOST_PASSES else FEW_DOCUMENTS)
    command = await _command(stage, journal, point)
    async with under_traffic(_traffic(stage, journal)) as traffic:
        process = await stage.replays.start(*command, strike=strike)
        await eventually(
            lambda: not _is_running(breakable_postgres), "Postgres is killed", timeout=30
        )
        await breakable_postgres.stop()
        await breakable_postgres.start()
        result = await stage.replays.finished(process)
    assert result.code == 0 or any(one in result.last_line for one in TOLD)
    await stage.assert_settles_whole(journal, traffic.receipts, *UNFINISHED)
    await _assert_second_try_finishes(stage, journal, command)


def _drawn(point: str, seed: int, victim: int = 0) -> tuple[Journal, Strike]:
    passes = random.Random(seed).randint(1, MOST_PASSES.get(point, 1))
    return Journal(seed), Strike(point, passes, victim)


def _traffic(stage: Stage, journal: Journal) -> Traffic:
    return stage.traffic(journal, CHANGES_PER_SECOND, QUESTIONS_PER_SECOND)


async def _command(stage: Stage, journal: Journal, point: str) -> list[str]:
    """Arguments of the `headrace replay` command that passes the point."""
    project = ["--project", journal.project]
    build = [*project, "--chunking", RECIPE]
    if point != "replay.dropping":
        return build
    await stage.replays.killed(*build, strike=Strike("replay.verified"))
    [built] = [
        one for one, state in (await stage.generations(journal)).items() if state == "building"
    ]
    return ["drop", str(built)]


async def _assert_second_try_finishes(stage: Stage, journal: Journal, command: list[str]) -> None:
    before = await stage.generations(journal)
    async with under_traffic(_traffic(stage, journal)) as traffic:
        result = await stage.replays(*command)
    assert result.code == 0, result.stderr
    assert (traffic.failures, traffic.unseen) == ([], [])
    await stage.assert_settles_whole(journal, traffic.receipts)
    states = await stage.generations(journal)
    if command[0] == "drop":
        assert list(states.values()) == ["live"]
        return
    assert sorted(set(states.values())) == ["former", "live"]
    unfinished = [one for one, state in before.items() if state == "building"]
    assert all(states[one] == "live" for one in unfinished), "it was started again"


def _is_running(server: EmbeddedPostgres) -> bool:
    try:
        return server.pid > 0
    except Unavailable:
        return False
