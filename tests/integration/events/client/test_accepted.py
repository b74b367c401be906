"""Notes of accepted changes on a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from events.client.accepted import AcceptedChanges
from events.client.publisher import Publisher
from events.models import DocumentChange, DocumentChanged
from events.names import Names
from events.server.connection import connect
from events.signatures import SigningKey

NAMES = Names()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = connect(redis_url)
    yield client
    await client.aclose()


async def test_a_change_is_noted_for_its_project_alone(redis: Redis) -> None:
    accepted = AcceptedChanges(redis, NAMES)
    tokens = ["live:0:5000-10", "bulk:1:5000-10", "live:0:7000-0"]
    await accepted.add("docs", tokens)
    assert all([await accepted.has("docs", token) for token in tokens])
    for other in ("live:0:5000-1", "live:1:5000-10", "live:0:6000-0"):
        assert not await accepted.has("docs", other)
    assert not await accepted.has("other", tokens[0])


async def test_a_change_that_is_noted_again_takes_no_room(redis: Redis) -> None:
    accepted = AcceptedChanges(redis, NAMES)
    await accepted.add("docs", ["live:0:5000-1", "live:0:5000-10"])
    key = NAMES.gateway("docs.50", "accepted")
    size = await redis.strlen(key)
    await accepted.add("docs", ["live:0:5000-10", "live:0:5000-1"])
    assert await redis.strlen(key) == size > 0
    assert 0 < await redis.pttl(key) <= 24 * 3600 * 1000


async def test_an_event_id_names_its_change_in_each_partition(redis: Redis) -> None:
    """Those of other projects, of other ids and of signed events are left out."""
    names = Names(partitions=4)
    uris = {names.partition_of("docs", f"{number}.md"): f"{number}.md" for number in range(40)}

    def event(uri: str, event_id: str = "spring", project: str = "docs") -> DocumentChanged:
        change = DocumentChange(project=project, uri=uri, content="Herons.")
        return DocumentChanged(id=event_id, data=change)

    publisher = Publisher(redis, names)
    tokens = [(await publisher.publish(event(uri))).token for uri in uris.values()]
    await publisher.publish(event("a.md", event_id="summer"))
    signer = Publisher(redis, names, signing_key=SigningKey.new())
    await signer.publish(event("a.md", event_id="signed"))
    await redis.set(names.seen("docs", "nonsense", 0), b"\xff of no entry")
    accepted = AcceptedChanges(redis, names)
    assert sorted(await accepted.tokens_of("docs", "spring")) == sorted(tokens)
    assert len(set(tokens)) == 4
    for project, event_id in (("other", "spring"), ("docs", "signed"), ("docs", "nonsense")):
        assert await accepted.tokens_of(project, event_id) == []
