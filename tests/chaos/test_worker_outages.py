"""Workers that all die at once, that are restarted one by one, that sleep past their lease."""

from __future__ import annotations

import asyncio
import signal

import pytest

from events.models import DocumentChange, DocumentChanged
from events.names import Lane
from tests.chaos.replays import Strike
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds
from tests.chaos.takeovers import owed
from tests.support.waiting import eventually

SHORT_LEASE = "PT2S"
WITH_A_ZOMBIE_SECONDS = 30.0
"""It may hold rows until Postgres ends its transactions."""
ZOMBIES = ("indexing.prepared", "indexing.committed", "answering.found")


@pytest.mark.parametrize("seed", seeds())
async def test_questions_outlive_all_workers(chaos: Chaos, seed: int) -> None:
    """All die with questions and changes in hand and unread: one started later answers them."""
    async with chaos(seed, scenario="kill -9 of all workers", HEADRACE_LEASE=SHORT_LEASE) as run:
        frozen = Strike("answering.found", 3, signal=signal.SIGSTOP)
        workers = await asyncio.gather(run.worker(strike=frozen), run.worker(strike=frozen))
        async with run.load.running(questions_per_second=20):
            await eventually(lambda: _all_stopped(run), "both have questions in hand")
        await run.load.ask(10)
        assert any([await owed(run, worker) for worker in workers])
        await asyncio.gather(*(worker.kill() for worker in workers))
        await run.worker()
        await run.verify()


@pytest.mark.parametrize("seed", seeds())
async def test_a_rolling_restart_costs_nothing(chaos: Chaos, seed: int) -> None:
    """Under load, each in turn gets SIGTERM: no attempt is counted, no lease has to run out."""
    async with chaos(
        seed, scenario="rolling SIGTERM", HEADRACE_MAX_DELIVERIES="1", HEADRACE_LEASE="PT60S"
    ) as run:
        workers = list(await asyncio.gather(run.worker(), run.worker()))
        async with run.load.running(changes_per_second=24, questions_per_second=4):
            for _ in range(len(workers)):
                retiring = workers.pop(0)
                workers.append(await run.worker())
                await retiring.stop()
        await run.verify()


@pytest.mark.parametrize("seed", seeds())
async def test_a_zombie_is_fenced(chaos: Chaos, seed: int) -> None:
    """Stopped past its lease and woken, a worker overwrites nothing newer and replies to nobody."""
    await asyncio.gather(*(_zombie(chaos, point, seed) for point in ZOMBIES))


async def _zombie(chaos: Chaos, point: str, seed: int) -> None:
    async with chaos(
        seed, scenario=f"SIGSTOP at {point}, SIGCONT", HEADRACE_LEASE=SHORT_LEASE
    ) as run:
        strike = Strike(point, 2, signal=signal.SIGSTOP)
        other, zombie = await asyncio.gather(run.worker(), run.worker(strike=strike))
        async with run.load.running(questions_per_second=10):
            await eventually(lambda: zombie.is_stopped, "the worker is stopped")
        await run.verifier.assert_settled(WITH_A_ZOMBIE_SECONDS)
        await _edit_everything(run)
        await run.verifier.assert_settled(WITH_A_ZOMBIE_SECONDS)
        zombie.send(signal.SIGCONT)
        await _serves(run)
        await other.stop()
        await _serves(run)
        await run.verify()


async def _edit_everything(run: Run) -> None:
    """Whatever the zombie holds is old now."""
    for project in run.logbook.projects:
        oracle = run.logbook.oracle(project)
        events = [
            DocumentChanged(
                data=DocumentChange(project=project, uri=uri, content=f"{content}\nEdited.\n")
            )
            for uri, content in oracle.items()
        ]
        await run.load.publish_these(events, Lane.BULK)


async def _serves(run: Run) -> None:
    """Changes and questions come to their end."""
    await run.load.publish(20)
    await run.load.ask(5)
    await run.answered()
    await run.verifier.assert_settled()


async def _all_stopped(run: Run) -> bool:
    return all(worker.is_stopped for worker in run.workers)
