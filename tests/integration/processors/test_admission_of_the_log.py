"""Admission of changes outside the indexer: outbox, archive and repeated publishing."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from redis.asyncio import Redis

from events.client.publisher import Publisher
from events.models import Problem
from events.names import GROUPS, Lane, LogPosition, Names, Topic
from events.signatures import SigningKey
from events.streams.dead_letters import DeadLetter
from processors.doctor.checks.log import letters_by_project
from store.documents.ledger import Entry, claimed_by, record
from store.generations.catalog import Projects
from store.postgres.pool import Database
from store.store import Store
from tests.support.archivers import archive_all, archiver, pending
from tests.support.archives import ArchiveAt
from tests.support.databases import Database as FreshDatabase
from tests.support.durable import PROJECT, Durable
from tests.support.signing import LIVE, add_key, add_raw, change
from tests.support.streams import read_stream


@pytest.fixture
async def key(database: FreshDatabase) -> SigningKey:
    """Key of the project ``docs``."""
    return await add_key(database)


async def decide(
    worker: Database,
    store: Store,
    token: str,
    outcome: str,
    detail: dict[str, object] | None = None,
) -> None:
    """Record an outcome in the ledger, as the indexer does."""
    position = LogPosition.from_token(token).position
    if outcome == "rejected":
        problem = Problem(type="SignatureRefused", detail="no signature")
        await store.record_rejected(
            project=PROJECT, partition=0, position=position, event_id="e", problem=problem
        )
        return
    project_id = await Projects(worker).find(PROJECT)
    assert project_id is not None
    async with worker.scope(project_id) as connection:
        entry = Entry(LogPosition(position, 0), "e", "indexed", detail=detail)
        await record(connection, project_id, [entry])


async def test_the_archiver_leaves_a_doubtful_change_to_the_indexer(
    redis: Redis, worker: Database, store: Store, kept: ArchiveAt, key: SigningKey
) -> None:
    """The archiver leaves an unsigned change pending until the indexer has decided."""
    taken = await add_raw(redis, change("taken.md").to_bytes())
    refused = await add_raw(redis, change("refused.md").to_bytes())
    group, one = archiver(redis, worker, kept.archive)
    await group.begin()
    event = change("signed.md").to_bytes()
    await add_raw(redis, event, signature=key.sign(event))
    for _ in range(2):
        assert not await one.archive_batch()
    assert await pending(redis) == 2
    await decide(worker, store, refused, "rejected")
    await decide(worker, store, taken, "indexed")
    assert not await one.archive_batch()
    assert await pending(redis) == 0
    found = {found.event.data.uri for found in await kept.changes(project=PROJECT)}
    assert found == {"signed.md", "taken.md"}


async def test_a_place_that_is_only_claimed_is_not_archived(
    redis: Redis, worker: Database, store: Store, kept: ArchiveAt, key: SigningKey
) -> None:
    """An unsigned change that asserts an applied position is not archived."""
    event = change("a.md").to_bytes()
    token = await add_raw(redis, event, signature=key.sign(event))
    await decide(worker, store, token, "indexed")
    claimed = str(LogPosition.from_token(token).position)
    forged = await add_raw(redis, change("forged.md").to_bytes(), position=claimed)
    await decide(worker, store, forged, "rejected")
    await archive_all(redis, worker, kept.archive)
    assert [found.event.data.uri for found in await kept.changes(project=PROJECT)] == ["a.md"]
    assert await pending(redis) == 0


async def test_a_place_that_another_change_has_claimed_vouches_for_that_one_only(
    redis: Redis, worker: Database, store: Store, kept: ArchiveAt, key: SigningKey
) -> None:
    """An asserted position in the ledger admits only the change that asserted it."""
    redriven = change("redriven.md").to_bytes()
    tokens = [await add_raw(redis, one) for one in (change("forged.md").to_bytes(), redriven)]
    for token in tokens:
        claimant = hashlib.sha256(redriven).hexdigest()
        await decide(worker, store, token, "indexed", claimed_by(claimant))
    await archive_all(redis, worker, kept.archive)
    found = [found.event.data.uri for found in await kept.changes(project=PROJECT)]
    assert found == ["redriven.md"]
    assert await pending(redis) == 0


async def test_doctor_takes_no_refused_changes_word_for_its_place(redis: Redis) -> None:
    """An asserted position is ignored if the event was refused before or at its signature check."""
    letter = DeadLetter(
        event=change("a.md").to_bytes(),
        topic=Topic.CHANGED_LIVE,
        partition=0,
        entry_id="9-0",
        group=GROUPS[Topic.CHANGED_LIVE],
        error="SignatureRefused",
        detail="no signature",
        attempts=1,
        first_at=datetime.now(UTC),
        last_at=datetime.now(UTC),
        position=7,
    )
    for error in ("SignatureRefused", "MalformedEvent", "LimitExceeded"):
        fields = replace(letter, error=error).to_fields()
        await redis.xadd(Names().dead(Topic.CHANGED_LIVE), fields)
    found = await letters_by_project(redis, Names())
    own = LogPosition.of_entry(Lane.LIVE, 0, "9-0").position
    assert found[PROJECT].keys() == {(7, 0), (own, 0)}


async def test_a_durable_change_comes_back_with_its_signature(
    redis: Redis, worker: Database, key: SigningKey
) -> None:
    """A durable change is republished with its signature, and counts as published."""
    durable = Durable.at(redis, worker, signing_key=key)
    event = change("a.md")
    receipt = await durable.publish(event)
    before = await read_stream(redis, LIVE)
    await redis.flushall()
    assert [await durable.republish(), await durable.republish()] == [1, 0]
    [entry] = await read_stream(redis, LIVE)
    position = str(LogPosition.from_token(receipt.token).position).encode()
    assert dict(entry.fields) == {**before[0].fields, b"position": position}
    assert (await durable.publish(event)).duplicate


async def test_a_durable_change_that_is_refused_does_not_come_again(
    durable: Durable, redis: Redis, worker: Database, store: Store, kept: ArchiveAt, key: SigningKey
) -> None:
    """A refused durable change leaves the outbox and is not republished."""
    receipt = await durable.publish(change("a.md"))
    waiting = await durable.publish(change("b.md"))
    await decide(worker, store, receipt.token, "rejected")
    await durable.archive(kept.archive)
    assert set(await durable.rows()) == {waiting.event_id}
    assert await durable.republish() == 0
    assert await pending(redis) == 1


async def test_an_invalid_token_does_not_keep_an_event_out(redis: Redis) -> None:
    """An invalid token in Redis does not prevent an event from being published."""
    event = change("a.md")
    for nonsense in (b"", b" ", b"\xff", b"\x1b[2J", b"live:0:1-1\x1b[2J"):
        await redis.set(Names().seen(PROJECT, event.id, 0), nonsense)
        receipt = await Publisher(redis, Names()).publish(event)
        assert not receipt.duplicate
        assert LogPosition.from_token(receipt.token).position
    assert (await Publisher(redis, Names()).publish(event)).duplicate


async def test_a_used_id_does_not_keep_a_signed_event_out(redis: Redis, key: SigningKey) -> None:
    """An unsigned entry with the same id does not prevent a signed one."""
    event = change("a.md")
    first = await Publisher(redis, Names()).publish(event)
    signing = Publisher(redis, Names(), signing_key=key)
    signed = await signing.publish(event)
    assert not signed.duplicate
    assert signed.token != first.token
    assert (await signing.publish(event)).token == signed.token
    entries = await read_stream(redis, LIVE)
    signatures = [entry.fields.get(b"signature") for entry in entries]
    assert signatures == [None, key.sign(event.to_bytes()).encode()]
