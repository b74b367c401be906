"""Outages of workers: all killed at once, restarted one by one, or stopped past their lease."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import monotonic

import pytest

from events.models import DocumentChange, DocumentChanged
from events.names import Lane
from tests.chaos.fleet import Worker
from tests.chaos.replays import Strike
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds
from tests.chaos.takeovers import owed, settled_since
from tests.support.proxy import Brake, Proxy, running_proxy
from tests.support.waiting import eventually, patience

SHORT_LEASE = "PT2S"
WITH_A_ZOMBIE_SECONDS = 10.0
"""Limit with a zombie, which may hold row locks until its transactions are ended."""
ZOMBIES = ("indexing.prepared", "indexing.committed", "answering.found")
INSTANTS = 5
"""Workers of a run that are stopped inside a write."""
PIECES = 20
"""Least number of pieces that a worker's first write sends between first lock and COMMIT."""
FIRST_LOCK, COMMIT = b"enter_to_write", b"COMMIT;"
Note = Callable[[str, object], None]


@pytest.mark.parametrize("seed", seeds())
async def test_questions_outlive_all_workers(chaos: Chaos, seed: int) -> None:
    """A worker that starts after all others were killed answers their questions."""
    async with chaos(seed, scenario="kill -9 of all workers", HEADRACE_LEASE=SHORT_LEASE) as run:
        frozen = Strike("answering.found", 3, signal=signal.SIGSTOP)
        workers = await asyncio.gather(run.worker(strike=frozen), run.worker(strike=frozen))
        async with run.load.running(questions_per_second=20):
            await eventually(lambda: _all_stopped(workers), "both hold questions")
        await run.load.ask(10)
        assert any([await owed(run, worker) for worker in workers])
        await asyncio.gather(*(worker.kill() for worker in workers))
        await run.worker()
        await run.verify()


@pytest.mark.parametrize("seed", seeds())
async def test_a_rolling_restart_costs_nothing(chaos: Chaos, seed: int) -> None:
    """A rolling restart with SIGTERM counts no attempt and waits for no lease."""
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
    """A worker that was stopped past its lease overwrites nothing newer and sends no reply."""
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


@pytest.mark.parametrize("seed", seeds())
async def test_others_go_on_beside_stopped_writers(
    chaos: Chaos, seed: int, record_property: Note
) -> None:
    """Work of workers that are stopped inside a write is taken over in time.

    A seed has five instants.
    """
    rng = random.Random(f"instants {seed}")
    async with (
        chaos(seed, scenario="SIGSTOP inside writes", HEADRACE_LEASE=SHORT_LEASE) as run,
        AsyncExitStack() as stack,
    ):
        await run.worker()
        zombies = [await stack.enter_async_context(_braked(run, rng)) for _ in range(INSTANTS)]
        async with run.load.running(questions_per_second=0):
            await eventually(
                lambda: _all_stopped([one.worker for one in zombies]), "all are stopped", timeout=60
            )
        seconds = await settled_since(monotonic(), run, *(one.worker for one in zombies))
        record_property("stopped_takeover_seconds", round(seconds, 3))
        assert seconds <= patience(WITH_A_ZOMBIE_SECONDS)
        await _edit_everything(run)
        await run.verifier.assert_settled(WITH_A_ZOMBIE_SECONDS)
        assert _all_stopped([one.worker for one in zombies])
        for zombie in zombies:
            zombie.wake()
        await _serves(run)
        await run.verify()


@dataclass(frozen=True)
class _Braked:
    """Worker behind a proxy that stops it in the middle of its first write."""

    worker: Worker
    proxy: Proxy

    def wake(self) -> None:
        """Continue the worker."""
        self.proxy.heal()
        self.worker.send(signal.SIGCONT)


@asynccontextmanager
async def _braked(run: Run, rng: random.Random) -> AsyncIterator[_Braked]:
    """Start a worker that is stopped at a random instant: before, after or inside a piece."""
    async with running_proxy(run.database.worker_url) as proxy:
        worker = await run.worker("--only", "indexer", HEADRACE_DATABASE_URL=proxy.url)
        pieces, share = rng.randrange(PIECES), rng.choice((0.0, rng.random(), 1.0))
        pull = partial(worker.send, signal.SIGSTOP)
        proxy.brake(Brake(FIRST_LOCK, COMMIT, pieces, share, pull))
        yield _Braked(worker, proxy)


async def _edit_everything(run: Run) -> None:
    """Edit every document, so that a zombie's changes are outdated."""
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
    """Assert that changes and questions are handled."""
    await run.load.publish(20)
    await run.load.ask(5)
    await run.answered()
    await run.verifier.assert_settled()


def _all_stopped(workers: Sequence[Worker]) -> bool:
    return all(worker.is_stopped for worker in workers)
