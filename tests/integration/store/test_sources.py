"""Sources: their names, leases and indexed documents."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from events.models import Origin, Problem
from events.names import LogPosition
from runtime.errors import SourceBusy, SourceLost, UsageError
from store.generations.catalog import Projects
from store.postgres.pool import Database
from store.sources import LeasedSource, RegisteredSource, Sources
from store.store import Store
from store.types import DocumentWrite
from store.views.listing import Listing
from tests.support.databases import Database as FreshDatabase
from tests.support.writes import RECIPE, document_write, opened

LEASE = timedelta(minutes=1)
OVER = timedelta(0)


@pytest.fixture
async def sources(database: FreshDatabase) -> AsyncIterator[Sources]:
    """Sources as a publisher's user, who may not read documents."""
    url = database.worker_url.replace("headrace_worker@", "headrace_publisher@")
    async with opened(url) as publisher:
        yield Sources(publisher, Projects(publisher, RECIPE))


async def registered(sources: Sources, name: str = "docs", **values: str) -> RegisteredSource:
    return await sources.register(
        **{"project": "alpha", "key": f"key of {name}", "name": name}
        | {"kind": "directory", "location": f"/{name}"}
        | values
    )


def written(taken: LeasedSource, uri: str, position: int, **fields: Any) -> DocumentWrite:
    values = {"content_hash": "c" * 64, "origin": taken.origin} | fields
    return document_write(uri, position, ["text"], **values)


async def test_a_source_keeps_its_id_wherever_it_moves(sources: Sources) -> None:
    """A source keeps its id when its location or name changes."""
    first = await registered(sources)
    moved = await registered(sources, location="/elsewhere")
    renamed = await registered(sources, key=first.key, name="handbook")
    assert moved == replace(first, location="/elsewhere")
    assert [one.id for one in await sources.list("alpha")] == [first.id] == [renamed.id]
    assert await sources.list("beta") == []


async def test_a_source_is_handed_over_to_another_key(sources: Sources) -> None:
    """It keeps its id and prefix; the former key can't be used again, nor take over another."""
    first = await registered(sources, uri_prefix="docs/")
    taken = await sources.take(first, LEASE, 0)
    await sources.finish(taken, {"options": {"host": "another machine"}}, None)
    await registered(sources, key="a", name="a", former_key=first.key)
    assert {source.key for source in await sources.list("alpha")} == {"a", first.key}
    taken = await sources.take(first, LEASE, 0)
    await sources.finish(taken, {"options": {"host": socket.gethostname()}}, None)
    change = {"key": "new", "name": "docs@1", "kind": "git", "former_key": first.key}
    after = await registered(sources, **change)
    assert (after.id, after.key, after.kind) == (first.id, "new", "git")
    assert after.uri_prefix == "docs/"
    assert await registered(sources, **change) == after
    with pytest.raises(UsageError, match="belong to the repository that was there"):
        await registered(sources)
    other = await registered(sources, "other")
    await registered(sources, **change | {"former_key": other.key})
    assert {source.key for source in await sources.list("alpha")} == {"a", "new", other.key}


async def test_names_and_prefixes_are_not_taken_over(sources: Sources) -> None:
    """Names of other sources and prefixes in use can't be changed by registering again."""
    await registered(sources, uri_prefix="refused/")
    source = await registered(sources, uri_prefix="docs/")
    assert source.uri_prefix == "docs/", "nothing was published yet"
    taken = await sources.take(source, timedelta(minutes=1), 0)
    await sources.finish(taken, {}, None)
    with pytest.raises(UsageError, match="another source of alpha is called docs"):
        await registered(sources, key="another")
    with pytest.raises(UsageError, match="begin with 'docs/'; sync it with --prefix 'docs/'"):
        await registered(sources, uri_prefix="")
    assert (await registered(sources)).uri_prefix == "docs/"
    plain = await registered(sources, "plain", uri_prefix="")
    taken = await sources.take(plain, timedelta(minutes=1), 0)
    await sources.finish(taken, {}, None)
    with pytest.raises(UsageError, match="plain have no prefix; sync it without --prefix, or"):
        await registered(sources, "plain", uri_prefix="docs/")


async def test_one_sync_at_a_time_holds_a_source(sources: Sources) -> None:
    """A second sync is refused with the holder's name, and gets a higher revision afterwards."""
    source = await registered(sources)
    first = await sources.take(source, LEASE, horizon=1000, holder="the first")
    with pytest.raises(SourceBusy, match="the first is syncing source docs until") as busy:
        await sources.take(source, LEASE, horizon=1000)
    assert busy.value.holder == "the first"
    assert busy.value.until is not None
    await sources.renew(first, LEASE, {"half": "way"})
    await sources.release(first)
    second = await sources.take(source, LEASE, horizon=0)
    assert (first.revision, second.revision, second.state) == (1000, 1001, {"half": "way"})
    await sources.finish(second, {"files": {"a": "h"}}, "c0ffee")
    third = await sources.take(source, LEASE, horizon=5000)
    assert (third.revision, third.commit, third.state) == (5000, "c0ffee", {"files": {"a": "h"}})
    (listed,) = await sources.list("alpha")
    assert (listed.revision, listed.commit) == (5000, "c0ffee")
    assert listed.synced_at is not None


async def test_who_stood_still_too_long_has_lost_the_source(sources: Sources) -> None:
    """A sync that lost its lease can't change the source."""
    source = await registered(sources)
    late = await sources.take(source, OVER, horizon=0)
    now = await sources.take(source, LEASE, horizon=0)
    for attempt in (
        sources.renew(late, LEASE),
        sources.finish(late, {"late": True}, None),
        sources.release(late),
    ):
        with pytest.raises(SourceLost, match="run it again"):
            await attempt
    await sources.finish(now, {"late": False}, None)
    assert (await sources.take(source, LEASE, horizon=0)).state == {"late": False}


async def test_a_revision_goes_before_all_that_was_handled(sources: Sources, store: Store) -> None:
    """A revision is at least the highest handled position."""
    source = await registered(sources)
    await store.apply([document_write("a", 7000), document_write("b", 9000, partition=3)])
    assert (await sources.take(source, LEASE, horizon=10)).revision == 9000


async def test_a_publisher_sees_what_the_index_holds_of_a_source(
    sources: Sources, store: Store, worker: Database
) -> None:
    """A publisher sees the live shared documents of a source, and the owners of others."""
    docs, code = await registered(sources), await registered(sources, "code")
    first = await sources.take(docs, LEASE, horizon=10)
    second = await sources.take(code, LEASE, horizon=11)
    writes = [
        written(first, "a", 20, collections=("rules", "all"), title="A", commit="c0ffee"),
        written(first, "gone", 21),
        written(first, "gone", 22, change="delete", chunks=(), content_hash=None),
        written(second, "b", 23),
        document_write("agents", 24, ["text"]),
        document_write("private", 25, ["text"], agent="ann"),
        written(first, "lost", 26, origin=Origin(source="f" * 32, revision=1)),
    ]
    await store.apply(writes)
    found = await sources.documents(docs)
    assert found.keys() == {"a"}
    held = found["a"]
    assert (held.content_hash, held.collections) == ("c" * 64, ("all", "rules"))
    assert (held.commit, held.position, held.partition) == ("c0ffee", 20, 0)
    assert (held.revision, held.title, held.permalink) == (first.revision, "A", None)
    owners = await sources.owners(docs, ["a", "b", "gone", "agents", "private", "lost", "new"])
    assert {uri: one.name for uri, one in owners.others.items()} == {"b": "code"}
    assert owners.without == {"agents", "lost"}
    assert {one.name: one.documents for one in await sources.list("alpha")} == {
        "code": 1,
        "docs": 1,
    }
    async with worker.scope((await store.generation("alpha")).project_id) as connection:
        await connection.execute("delete from sources where id = $1", code.id)
    assert (await sources.owners(docs, ["b"])).without == {"b"}


async def test_a_private_source_shows_to_its_agent_only(
    sources: Sources, store: Store, worker: Database
) -> None:
    """An agent's source has names, keys, documents and owners of its own, which no other sees."""
    shared, own = await registered(sources), await registered(sources, agent="ann")
    assert shared.id != own.id
    taken = await sources.take(own, LEASE, horizon=10)
    await sources.finish(taken, {"version": 3, "pending": "ann's"}, None)
    await store.apply(
        [
            written(await sources.take(shared, LEASE, horizon=10), "a", 20),
            written(taken, "a", 21, agent="ann", content_hash="d" * 64),
            document_write("remembered", 22, ["text"], agent="ann"),
        ]
    )
    assert [source.id for source in await sources.list("alpha")] == [shared.id]
    assert [source.id for source in await sources.list("alpha", "bob")] == [shared.id]
    of_ann = {source.id: source.documents for source in await sources.list("alpha", "ann")}
    assert of_ann == {shared.id: 1, own.id: 1}
    assert await sources.contents(shared) == {"a": ("c" * 64, ())}
    assert await sources.contents(own) == {"a": ("d" * 64, ())}
    for stranger in (replace(own, agent=""), replace(own, agent="bob")):
        assert await sources.contents(stranger) == {}
        with pytest.raises(UsageError, match="not registered"):
            await sources.take(stranger, LEASE, horizon=0)
    owners = await sources.owners(own, ["a", "remembered"])
    assert not owners.others, "the shared `a` is another document"
    assert owners.without == {"remembered"}
    assert await sources.states_of_others(shared) == []
    listing = Listing(worker)
    assert [row.agent for row in await listing.sources("alpha", "ann")] == [None, "ann"]
    assert [row.agent for row in await listing.sources("alpha", "bob")] == [None]


async def test_a_publisher_learns_what_became_of_its_changes(
    sources: Sources, store: Store
) -> None:
    """A publisher sees the outcomes of its changes, with reasons of rejected ones."""
    tokens = [LogPosition(number, 0).token for number in (10, 20, 30)]
    await store.apply([document_write("a", 10, ["text"])])
    problem = Problem(type="LimitExceeded", detail="too big")
    await store.record_rejected(
        project="alpha", partition=0, position=20, event_id="e", problem=problem
    )
    found = await sources.handled("alpha", tokens)
    assert {token: (one.outcome, one.reason) for token, one in found.items()} == {
        tokens[0]: ("indexed", None),
        tokens[1]: ("rejected", "too big"),
    }
    assert await sources.handled("beta", tokens) == {}
