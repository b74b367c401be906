"""Questions during continuous kills of workers: each has exactly one terminal reply.

``HEADRACE_TEST_QUERIES=10000`` asks as many.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from events.models import QueryFailed
from tests.chaos.replies import Reply
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import count_of, seeds, size
from tests.support.waiting import eventually

QUERIES = count_of("HEADRACE_TEST_QUERIES", size(80, thorough=150))
QUESTIONS_PER_SECOND = 50.0
CHANGES_PER_SECOND = size(8, thorough=16)
LONGEST_SECONDS = 60 + QUERIES / 5
WORKERS = 3
MANY_DELIVERIES = "100"
"""A change may be pending during several kills, and must not be blamed for them."""
LONGEST_LIFE_SECONDS = 1.0
Note = Callable[[str, object], None]


@pytest.mark.timeout(2 * LONGEST_SECONDS)
@pytest.mark.parametrize("seed", seeds())
async def test_each_question_has_one_reply(chaos: Chaos, seed: int, record_property: Note) -> None:
    """Each question has one reply, whichever workers are killed."""
    scenario = f"{QUERIES} questions, kill -9 all the time"
    async with chaos(seed, scenario=scenario, HEADRACE_MAX_DELIVERIES=MANY_DELIVERIES) as run:
        await asyncio.gather(*(run.worker() for _ in range(WORKERS)))
        async with (
            _killing(run, record_property),
            run.load.running(
                changes_per_second=CHANGES_PER_SECOND, questions_per_second=QUESTIONS_PER_SECOND
            ),
        ):
            await eventually(
                lambda: _asked(run), "all is asked", timeout=LONGEST_SECONDS, every=0.5
            )
        await run.answered(timeout=60)
        await run.verify()
        _note(run, record_property)


async def _asked(run: Run) -> bool:
    """Collect replies, which Redis does not keep for ever; true once all questions are asked."""
    await run.replies.collect(run.logbook.questions)
    return len(run.logbook.questions) >= QUERIES


@asynccontextmanager
async def _killing(run: Run, note: Note) -> AsyncIterator[None]:
    """Kill and replace random workers for the length of the block."""
    stop, rng, kills = asyncio.Event(), random.Random(run.seed), 0

    async def kill() -> None:
        nonlocal kills
        while not stop.is_set():
            victim = rng.choice([one for one in run.workers if one.is_running])
            await asyncio.gather(victim.kill(), run.worker())
            kills += 1
            try:
                await asyncio.wait_for(stop.wait(), rng.uniform(0, LONGEST_LIFE_SECONDS))
            except TimeoutError:
                continue

    task = asyncio.create_task(kill())
    try:
        yield
    finally:
        stop.set()
        await task
    note("kills", kills)


def _note(run: Run, note: Note) -> None:
    questions = run.logbook.questions
    kinds = Counter(_kind(run.replies.by_query[one.id][0]) for one in questions)
    for kind, number in kinds.items():
        note(f"replies {kind}", number)
    for one in questions:
        note("reply_ms", run.replies.milliseconds(one))


def _kind(reply: Reply) -> str:
    event = reply.event
    return event.data.problem.type if isinstance(event, QueryFailed) else "answered"
