"""Dead letters by filter: pages, counts, and operations on all of a filter."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import count

import pytest
from redis.asyncio import Redis

from events.names import GROUPS, Names, Topic
from events.streams.dead_letters import DeadLetter, DeadLetters
from events.streams.letter_selection import LetterFilter, LetterSelection
from runtime.errors import Conflict, UsageError
from tests.support.streams import read_stream

NAMES = Names(partitions=2)


def letter(number: int, project: str, error: str, topic: Topic, partition: int) -> DeadLetter:
    return DeadLetter(
        event=json.dumps({"data": {"project": project}}).encode(),
        topic=topic,
        partition=partition,
        entry_id=f"{number}-0",
        group=GROUPS[topic],
        error=error,
        detail="of a test",
        attempts=1,
        first_at=datetime(2026, 1, 1, tzinfo=UTC),
        last_at=datetime(2026, 1, 2, 0, 0, number % 60, tzinfo=UTC),
    )


async def add(
    redis: Redis,
    number: int,
    project: str = "docs",
    error: str = "LimitExceeded",
    topic: Topic = Topic.CHANGED_LIVE,
    partition: int = 0,
) -> None:
    """Dead-letter an event at the moment ``number``."""
    fields = letter(number, project, error, topic, partition).to_fields()
    await redis.xadd(NAMES.dead(topic, partition), fields, id=f"{number}-0")


@pytest.fixture
async def selection(redis: Redis) -> LetterSelection:
    """Six letters of two projects, two errors and three streams; two are of one moment."""
    await add(redis, 1)
    await add(redis, 2, error="MalformedEvent")
    await add(redis, 3, project="other")
    await add(redis, 4, partition=1)
    await add(redis, 4, topic=Topic.CHANGED_BULK)
    await add(redis, 5, topic=Topic.CHANGED_BULK, partition=1)
    return LetterSelection(redis, NAMES)


async def test_pages_have_every_letter_once(selection: LetterSelection) -> None:
    """Pages of two letters follow one another, newest first, across streams."""
    pages: list[list[str]] = []
    before = None
    while page := await selection.page(LetterFilter(), before=before, limit=2):
        pages.append([one.entry_id for one in page])
        before = page[-1].id
    assert pages == [["5-0", "4-0"], ["4-0", "3-0"], ["2-0", "1-0"]]


async def test_a_page_follows_a_letter_that_is_gone(
    redis: Redis, selection: LetterSelection
) -> None:
    """The last letter of a page may be redriven before the next page is read."""
    first = await selection.page(LetterFilter(topic="document.changed.live"), limit=2)
    await DeadLetters(redis, NAMES).redrive(first[-1].id)
    second = await selection.page(LetterFilter(topic="document.changed.live"), before=first[-1].id)
    assert [one.entry_id for one in second] == ["2-0", "1-0"]


async def test_pages_are_read_on_beyond_one_reply(redis: Redis) -> None:
    """A filter finds letters behind hundreds that it does not match."""
    for number in range(1, 251):
        await add(redis, number, project="rare" if number == 1 else "docs")
    selection = LetterSelection(redis, NAMES)
    [rare] = await selection.page(LetterFilter(project="rare"))
    assert rare.entry_id == "1-0"
    assert len(await selection.page(LetterFilter(project="docs"), limit=1000)) == 249


async def test_letters_are_counted_by_reason(selection: LetterSelection) -> None:
    """Counts are by topic, error and project, the largest first."""
    rows = [(row.topic, row.error, row.project, row.count) for row in await selection.counts()]
    assert rows == [
        ("document.changed.bulk", "LimitExceeded", "docs", 2),
        ("document.changed.live", "LimitExceeded", "docs", 2),
        ("document.changed.live", "LimitExceeded", "other", 1),
        ("document.changed.live", "MalformedEvent", "docs", 1),
    ]


async def test_a_wrong_count_redrives_nothing(redis: Redis, selection: LetterSelection) -> None:
    """A filter that matches another number of letters changes nothing."""
    with pytest.raises(Conflict, match="matches 4 dead letters, not 3"):
        await selection.redrive(LetterFilter(project="docs", error="LimitExceeded"), count=3)
    assert len(await selection.page(LetterFilter())) == 6
    assert await redis.xlen(NAMES.stream(Topic.CHANGED_LIVE)) == 0


async def test_only_letters_of_the_filter_are_redriven(
    redis: Redis, selection: LetterSelection
) -> None:
    """Redriven events keep their order and position; other letters stay."""
    wanted = LetterFilter(topic="document.changed.live", error="LimitExceeded", project="docs")
    outcomes = await selection.redrive(wanted, count=2)
    assert [(one.outcome, one.token) for one in outcomes] == [
        ("redriven", "live:0:1-0"),
        ("redriven", "live:1:4-0"),
    ]
    assert [outcome.project for outcome in outcomes] == ["docs", "docs"]
    [entry] = await read_stream(redis, NAMES.stream(Topic.CHANGED_LIVE))
    assert entry.id == outcomes[0].entry_id
    assert len(await selection.page(LetterFilter())) == 4


async def test_letters_that_arrive_during_a_redrive_stay(
    redis: Redis, selection: LetterSelection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter that arrives after the count was checked is not touched."""
    redrive, numbers = DeadLetters.redrive, count(100)

    async def during(dead: DeadLetters, letter_id: str) -> str:
        await add(redis, next(numbers))
        return await redrive(dead, letter_id)

    monkeypatch.setattr(DeadLetters, "redrive", during)
    outcomes = await selection.redrive(LetterFilter(error="LimitExceeded"), count=5)
    assert [one.outcome for one in outcomes] == ["redriven"] * 5
    left = await selection.page(LetterFilter(error="LimitExceeded"))
    assert len(left) == 5
    assert all(int(one.id.rpartition("/")[2].split("-")[0]) >= 100 for one in left)


async def test_a_letter_that_another_operation_took_is_gone(
    redis: Redis, selection: LetterSelection
) -> None:
    """Repeated ids, and letters that were dropped, are reported and harmless."""
    [newest, *_] = await selection.page(LetterFilter())
    await DeadLetters(redis, NAMES).drop(newest.id)
    assert [one.outcome for one in await selection.redrive_these([newest.id])] == ["gone"]
    assert [one.outcome for one in await selection.drop_these([newest.id])] == ["gone"]


async def test_all_letters_of_a_filter_are_dropped(selection: LetterSelection) -> None:
    """A drop leaves the letters that the filter does not match."""
    outcomes = await selection.drop(LetterFilter(project="docs"), count=5)
    assert {one.outcome for one in outcomes} == {"dropped"}
    assert [one.project for one in await selection.page(LetterFilter())] == ["other"]


async def test_a_cursor_that_is_not_an_id_is_refused(selection: LetterSelection) -> None:
    """A page after something that is not a letter's id is a wrong request."""
    with pytest.raises(UsageError, match="does not exist"):
        await selection.page(LetterFilter(), before="nonsense")
