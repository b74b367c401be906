"""Changes that come twice, late, out of order and with wrong clocks: the log's order decides.

``HEADRACE_TEST_SEEDS=20`` runs as many seeds of each.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import pytest

from events.client.client import Client
from events.client.publisher import Receipt
from events.models import DocumentChanged
from events.names import Lane, LogPosition, Topic
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds, size

HOUR = timedelta(hours=1)
PATIENCE = timedelta(minutes=1)
CHANGES = size(28, thorough=60)
"""Number of changes of each project."""
COPIES = 5


@pytest.mark.parametrize("seed", seeds())
async def test_every_change_five_times_and_shuffled(chaos: Chaos, seed: int) -> None:
    """Five shuffled copies of each change give the fold of the log.

    Two workers read them on both lanes, with their positions, as after a redrive.
    """
    rng = random.Random(seed)
    async with chaos(seed, scenario="five times, shuffled") as run:
        changes = list(placed(run, rng))
        for position, event in changes:
            note(run, event, position)
        copies = changes * COPIES
        rng.shuffle(copies)
        await run.worker()
        await run.worker()
        for position, event in copies:
            await add(run, rng.choice(list(Lane)), event, position=str(position.position))
        await run.verify()
        await assert_all_reported(run.client, run.logbook.receipts)


@pytest.mark.parametrize("seed", seeds())
async def test_clocks_are_an_hour_wrong(chaos: Chaos, seed: int) -> None:
    """I1 to I5 hold with Redis' clock an hour behind and ahead, and any publisher's clock."""
    rng = random.Random(seed)
    async with chaos(seed, scenario="wrong clocks") as run:
        now = datetime.now(UTC)
        await run.worker()
        for number, offset in enumerate([-HOUR, timedelta(), HOUR]):
            milliseconds = int((now + offset).timestamp() * 1000) + number
            for event in wrongly_dated(drawn(run), rng):
                lane = rng.choice(list(Lane))
                milliseconds += 1
                await add(run, lane, event, f"{milliseconds}-0")
                note(run, event, LogPosition.of_entry(lane, 0, f"{milliseconds}-0"))
        for event in wrongly_dated(drawn(run), rng):
            await run.load.publish_these([event], rng.choice(list(Lane)))
        await run.load.ask(10)
        await run.verify()
        await assert_all_reported(run.client, run.logbook.receipts)
        await assert_all_reported(run.client, [max(run.logbook.receipts, key=place)])


def place(receipt: Receipt) -> int:
    """Position of the receipt's change."""
    return LogPosition.from_token(receipt.token).position


async def assert_all_reported(client: Client, receipts: Sequence[Receipt]) -> None:
    """Assert that each change has an outcome."""
    assert len(await client.wait(receipts, PATIENCE)) == len(receipts)


def drawn(run: Run) -> Iterator[DocumentChanged]:
    """Next changes of both projects, consistent in this order."""
    return chain(*(journal.changes(CHANGES // 4) for journal in run.load.journals.values()))


def placed(run: Run, rng: random.Random) -> Iterator[tuple[LogPosition, DocumentChanged]]:
    """Changes with their positions in a log of an hour ago."""
    milliseconds = int((datetime.now(UTC) - HOUR).timestamp() * 1000)
    for _ in range(4):
        for event in drawn(run):
            milliseconds += 1
            yield LogPosition.of_entry(rng.choice(list(Lane)), 0, f"{milliseconds}-0"), event


def wrongly_dated(
    events: Iterable[DocumentChanged], rng: random.Random
) -> Iterator[DocumentChanged]:
    """Changes whose publisher's clock is up to an hour wrong."""
    for event in events:
        yield event.model_copy(update={"time": event.time + HOUR * rng.uniform(-1, 1)})


def note(run: Run, event: DocumentChanged, position: LogPosition) -> None:
    """Record the change in the logbook, as acknowledged."""
    entry = run.logbook.publishing(event, position.lane)
    entry.receipt = Receipt(position.token, event.id, duplicate=False)


async def add(
    run: Run, lane: Lane, event: DocumentChanged, entry_id: str = "*", **more: str
) -> None:
    """Add an entry, as any client may do."""
    stream = run.names.stream(Topic.of_lane(lane))
    fields: dict[Any, Any] = {"event": event.to_bytes(), **more}
    await run.redis.xadd(stream, fields, id=entry_id)
