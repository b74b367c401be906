"""Admission in a project with a key: only signed changes count, in indexing and replay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from events.client.client import Client
from events.client.outcomes import Outcome
from events.client.publisher import Receipt
from events.models import DocumentIndexed, DocumentRejected
from events.names import ARCHIVER, LogPosition, Names
from events.signatures import SigningKey
from events.streams.dead_letters import DeadLetter, DeadLetters
from runtime.errors import SignatureRefused
from tests.support.databases import Database
from tests.support.doctors import examine
from tests.support.replays import HASHING, replay, rows, tools
from tests.support.running import PATIENCE, Headrace, headrace
from tests.support.signing import LIVE, add_key, add_raw, change, retire_key
from tests.support.waiting import eventually

URIS = "select uri from documents where generation_id = $1 and not deleted order by uri"


@pytest.fixture
async def key(database: Database) -> SigningKey:
    """Key of the project ``docs``."""
    return await add_key(database)


@pytest.fixture
async def worker(
    redis_url: str, database: Database, key: SigningKey, tmp_path: Path
) -> AsyncIterator[Headrace]:
    """Worker with all roles."""
    async with headrace(redis_url, database, model=HASHING, home=tmp_path) as running:
        yield running


def signer(redis_url: str, key: SigningKey) -> Client:
    """Client that signs."""
    return Client.connect(redis_url, signing_key=f"{key.id}:{key.secret}")


async def outcome_of(client: Client, token: str) -> Outcome:
    """Outcome of an entry."""
    receipt = Receipt(token, "", duplicate=False)
    return (await client.wait([receipt], PATIENCE))[token]


async def publish(client: Client, uri: str, content: str = "# Text\n") -> Outcome:
    """Publish a change of a document, and wait for its outcome."""
    receipt = await client.publish(change(uri, content))
    return (await client.wait([receipt], PATIENCE))[receipt.token]


async def uris(database: Database) -> list[str]:
    """Uris of the documents in ``docs``."""
    return [row["uri"] for row in await rows(database, "docs", URIS)]


async def letters(redis: Redis) -> list[DeadLetter]:
    """Dead letters, oldest first."""
    return list(reversed(await DeadLetters(redis, Names()).list()))


async def all_archived(redis: Redis) -> bool:
    """True if the archiver has read and acknowledged every entry."""
    for group in await redis.xinfo_groups(LIVE):
        if group["name"] == ARCHIVER.encode():
            last: Any = await redis.xrevrange(LIVE, count=1)
            return bool(group["pending"] == 0 and group["last-delivered-id"] == last[0][0])
    return False


async def forge(redis: Redis, database: Database, key: SigningKey) -> dict[str, str]:
    """Add changes with missing or wrong signatures; tokens by uri."""
    stranger = await add_key(database, "other")
    old = await add_key(database)
    await retire_key(database, old)

    async def add(uri: str, signed_by: SigningKey | None, tail: bytes = b"", **fields: str) -> str:
        event = change(uri, "# Forged\n").to_bytes()
        signature = {} if signed_by is None else {"signature": signed_by.sign(event)}
        return await add_raw(redis, event + tail, **signature, **fields)

    return {
        "unsigned.md": await add("unsigned.md", None),
        "nonsense.md": await add("nonsense.md", None, signature="v1:nonsense"),
        "long.md": await add("long.md", None, signature="v1:" + "x" * 5_000),
        "unknown.md": await add("unknown.md", SigningKey.new()),
        "guessed.md": await add("guessed.md", SigningKey(key.id, "a guess at the secret")),
        "foreign.md": await add("foreign.md", stranger),
        "retired.md": await add("retired.md", old),
        "changed.md": await add("changed.md", key, tail=b" "),
    }


async def test_what_is_not_signed_as_it_should_be_is_a_dead_letter_for_good(
    worker: Headrace, redis: Redis, database: Database, key: SigningKey, tmp_path: Path
) -> None:
    """Wrongly signed changes are rejected with a reason, and stay out of archive and replays."""
    async with signer(worker.redis_url, key) as client:
        assert isinstance(await publish(client, "right.md"), DocumentIndexed)
        forged = await forge(redis, database, key)
        for uri, token in forged.items():
            outcome = await outcome_of(client, token)
            assert isinstance(outcome, DocumentRejected), uri
            assert outcome.data.problem.type == SignatureRefused.__name__
            assert outcome.data.uri == uri
        assert isinstance(await publish(client, "right too.md"), DocumentIndexed)
    expected = ["right too.md", "right.md"]
    assert await uris(database) == expected
    await eventually(lambda: _are_back(redis, len(forged)), "each is a dead letter")
    found = await letters(redis)
    assert {letter.error for letter in found} == {"SignatureRefused"}
    assert len({letter.detail for letter in found}) == 6
    await eventually(lambda: all_archived(redis), "the archiver is through")
    async with tools(worker.redis_url, database, home=tmp_path) as opened:
        archived = {one.event.data.uri async for one in opened.archive.events("docs")}
        assert archived == set(expected)
        assert (await examine(opened)).is_healthy
        for _ in range(2):
            assert (await replay(opened)).switched
            assert await uris(database) == expected
            await redis.flushall()


async def test_a_dead_letter_is_judged_anew_when_it_is_redriven(
    worker: Headrace, redis: Redis, database: Database, key: SigningKey
) -> None:
    """A redriven event is checked with the current keys, and keeps its signature and position."""
    soon = await add_key(database)
    await retire_key(database, soon)  # before a worker reads it: one caches keys for two seconds
    first = await add_raw(redis, change("a.md").to_bytes())
    event = change("b.md").to_bytes()
    token = await add_raw(redis, event, signature=soon.sign(event))
    for refused in (first, token):
        assert isinstance(await outcome_of(worker.client, refused), DocumentRejected)
    await eventually(lambda: _are_back(redis, 2), "both are dead letters")
    dead = DeadLetters(redis, Names())
    before = sorted(letter.signature for letter in await letters(redis))
    assert before == ["", soon.sign(event)]
    assert await dead.redrive_all() == 2
    await eventually(lambda: _are_back(redis, 2), "both are refused again")
    assert sorted(letter.signature for letter in await letters(redis)) == before
    await retire_key(database, key)
    assert await dead.redrive_all() == 2
    await eventually(lambda: _holds(database, ["a.md", "b.md"]), "both are applied")
    outcome = await outcome_of(worker.client, token)
    assert outcome.data.token == token


async def _are_back(redis: Redis, count: int) -> bool:
    return len(await letters(redis)) == count


async def _holds(database: Database, expected: list[str]) -> bool:
    return await uris(database) == expected


async def test_keys_rotate_without_a_pause(
    worker: Headrace, redis: Redis, database: Database, key: SigningKey, tmp_path: Path
) -> None:
    """Two keys are valid during a rotation; documents signed with a retired key stay."""
    new = await add_key(database)
    async with signer(worker.redis_url, key) as before, signer(worker.redis_url, new) as after:
        assert isinstance(await publish(before, "before.md"), DocumentIndexed)
        assert isinstance(await publish(after, "after.md"), DocumentIndexed)
        await retire_key(database, key)

        async def is_refused() -> bool:
            return isinstance(await publish(before, "late.md"), DocumentRejected)

        await eventually(is_refused, "the retired key is refused")
        assert isinstance(await publish(after, "later.md"), DocumentIndexed)
    kept = await uris(database)
    assert {"after.md", "before.md", "later.md"} <= set(kept)
    async with tools(worker.redis_url, database, home=tmp_path) as opened:
        assert (await examine(opened)).is_healthy
        assert (await replay(opened)).switched
    assert await uris(database) == kept


async def test_what_was_applied_before_the_keys_changed_is_found_without_an_archive(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """The ledger admits changes from before the keys changed."""
    only = ("indexer", "embedder")
    async with headrace(redis_url, database, model=HASHING, only=only, home=tmp_path) as running:
        await running.change("unsigned.md", "# Before there were keys\n")
        old = await add_key(database)
        async with signer(redis_url, old) as client:
            await publish(client, "signed.md")
        await add_key(database)
        await retire_key(database, old)

        async def is_refused() -> bool:
            token = await add_raw(redis, change("late.md").to_bytes())
            return isinstance(await outcome_of(running.client, token), DocumentRejected)

        await eventually(is_refused, "unsigned changes are refused")
        token = await add_raw(redis, change("forged.md").to_bytes())
        assert isinstance(await outcome_of(running.client, token), DocumentRejected)
    expected = await uris(database)
    assert {"signed.md", "unsigned.md"} <= set(expected) <= {"late.md", "signed.md", "unsigned.md"}
    async with tools(redis_url, database, home=tmp_path) as opened:
        assert (await replay(opened)).switched
        assert await uris(database) == expected
    # an archiver that starts later takes the same changes
    async with headrace(redis_url, database, model=HASHING, only=("archiver",), home=tmp_path):
        await eventually(lambda: all_archived(redis), "the archiver is through")
    async with tools(redis_url, database, home=tmp_path) as opened:
        archived = {one.event.data.uri async for one in opened.archive.events("docs")}
    assert archived == set(expected)


async def test_a_signed_change_that_asserts_its_position_does_not_make_a_forgery_count(
    worker: Headrace, redis: Redis, database: Database, key: SigningKey, tmp_path: Path
) -> None:
    """A signed change that asserts the position of an unsigned one does not admit it."""
    forged = await add_raw(redis, change("forged.md").to_bytes())
    assert isinstance(await outcome_of(worker.client, forged), DocumentRejected)
    event = change("a.md").to_bytes()
    place = str(LogPosition.from_token(forged).position)
    await add_raw(redis, event, signature=key.sign(event), position=place)
    await eventually(lambda: _holds(database, ["a.md"]), "the signed change is applied")
    async with tools(worker.redis_url, database, home=tmp_path) as opened:
        assert (await replay(opened)).switched
    assert await uris(database) == ["a.md"]


async def test_a_forger_can_claim_no_place_in_the_log(
    worker: Headrace, redis: Redis, key: SigningKey
) -> None:
    """An unsigned change that asserts the position of another does not affect its outcome."""
    async with signer(worker.redis_url, key) as client:
        receipt = await client.publish(change("a.md", "# True\n"))
        await client.wait([receipt], PATIENCE)
        claimed = str(LogPosition.from_token(receipt.token).position)
        event = change("a.md", "# Forged\n").to_bytes()
        token = await add_raw(redis, event, position=claimed)
        assert isinstance(await outcome_of(client, token), DocumentRejected)
        assert isinstance(await outcome_of(client, receipt.token), DocumentIndexed)
        answer = await client.ask("docs", "true", mode="keyword")
    assert [result.content for result in answer.results] == ["# True"]
