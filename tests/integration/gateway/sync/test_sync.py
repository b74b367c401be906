"""Syncs against a real log and a real index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis

from events.client.operator_client import OperatorClient
from events.client.publisher import Receipt
from events.models import DocumentChanged
from events.names import Lane, Names, Topic
from events.streams.entries import entries_of
from gateway.sync import ownership
from gateway.sync.ownership import Lease
from gateway.sync.registration import Destination
from gateway.sync.report import SyncReport, describe
from gateway.sync.sync import Until, preview_sync, sync_source
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.errors import SourceBusy, SourceLost, UsageError
from sources import Listing, Reason, SizeLimits, open_source
from sources.directory import DirectorySource
from store.generations.catalog import Recipe
from store.postgres.pool import Database
from store.sources import RegisteredSource
from store.store import Store
from tests.support.databases import Database as FreshDatabase
from tests.support.repositories import Repository, create_repository, write_files
from tests.support.running import headrace
from tests.support.waiting import eventually, within

LIMIT_BYTES = 2**23
PROJECT = "docs"


@dataclass
class Syncs:
    """Syncs of one client, and the documents in the index."""

    client: OperatorClient
    store: Store

    async def __call__(
        self, path: Path, until: Until = Until.KEYWORDS, *, full: bool = False, **destination: Any
    ) -> SyncReport:
        return await sync_source(
            open_source(path),
            Destination(PROJECT, **destination),
            self.client,
            self.store,
            sizes=SizeLimits(LIMIT_BYTES, LIMIT_BYTES),
            until=until,
            show=lambda *_, **__: None,
            full=full,
        )

    async def preview(self, path: Path) -> list[tuple[str, Reason | None]]:
        source = open_source(path)
        _, steps = await preview_sync(
            source,
            Destination(PROJECT),
            self.client,
            self.store,
            sizes=SizeLimits(LIMIT_BYTES, LIMIT_BYTES),
            show=lambda *_, **__: None,
        )
        return [(step.uri, step.reason) for step in steps]

    async def holds(self, uris: set[str]) -> bool:
        """True if the index contains exactly these documents of all sources together."""
        return {uri for held in (await self.uris()).values() for uri in held} == uris

    async def uris(self) -> dict[str, list[str]]:
        """Indexed uris by name of their source."""
        found = await self.store.sources.list(PROJECT)
        return {one.name: sorted(await self.store.sources.documents(one)) for one in found}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Directory beside the home that each test has."""
    path = tmp_path / "root"
    path.mkdir()
    return path


@pytest.fixture
async def syncs(redis_url: str, worker: Database) -> AsyncIterator[Syncs]:
    """Syncs with a client and a store, without a worker."""
    store = Store(worker, Recipe(HASHING_MODEL))
    async with OperatorClient.connect(redis_url, content_store=store) as client:
        yield Syncs(client, store)


def counts(report: SyncReport) -> tuple[int, int, int]:
    return report.unchanged, report.published, report.deleted


async def test_two_sources_keep_their_documents_apart(
    syncs: Syncs, redis_url: str, database: FreshDatabase, root: Path
) -> None:
    """Two sources with the same uris are refused by name; a prefix keeps them apart."""
    a, b = root / "a", root / "b"
    write_files(a, {"README.md": "Alpha retries payments."})
    write_files(b, {"README.md": "Beta sends invoices.", "only.md": "b"})
    async with headrace(redis_url, database):
        await syncs(a)
        with pytest.raises(UsageError) as caught:
            await syncs(b)
        for part in ("README.md", str(a), str(b), "--prefix"):
            assert part in str(caught.value)
        assert await syncs.uris() == {str(a): ["README.md"], str(b): []}
        await syncs(b, prefix="b/")
        (b / "README.md").unlink()
        assert counts(await syncs(b)) == (1, 0, 1), "the prefix is kept"
        assert await syncs.uris() == {str(a): ["README.md"], str(b): ["b/only.md"]}
        assert counts(await syncs(a)) == (1, 0, 0)
        with pytest.raises(UsageError, match="belong"):
            await syncs(a, source="other")


async def test_a_source_that_can_not_be_read_creates_no_project(
    syncs: Syncs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that can be read is listed once."""
    write_files(root, {"README.md": "Alpha retries payments."})
    listed = []
    of_directory = DirectorySource.list

    def refuse(*_: object) -> Listing:
        raise UsageError("there are no credentials")

    def count(source: DirectorySource, sizes: SizeLimits) -> Listing:
        listed.append(source)
        return of_directory(source, sizes)

    monkeypatch.setattr(DirectorySource, "list", refuse)
    with pytest.raises(UsageError, match="no credentials"):
        await syncs(root)
    assert await syncs.store.live(PROJECT) is None
    monkeypatch.setattr(DirectorySource, "list", count)
    assert counts(await syncs(root, Until.PUBLISHED)) == (0, 1, 0)
    assert len(listed) == 1


async def test_only_its_user_finds_the_documents_of_a_private_source(
    syncs: Syncs, redis_url: str, database: FreshDatabase, root: Path
) -> None:
    """A repository may be synced for all and for a user, whose documents nobody else finds."""
    repository = create_repository(root)
    repository.commit({"README.md": "The weir is low.", "b.md": "The sluice is shut."})
    async with headrace(redis_url, database):
        await syncs(root)
        repository.commit({"README.md": "The zephyr weir is high."})
        assert counts(await syncs(root, agent="ana")) == (0, 2, 0)
        assert counts(await syncs(root, agent="ana")) == (2, 0, 0)
        for agent, expected in ((None, set()), ("bob", set()), ("ana", {"README.md"})):
            answer = await syncs.client.ask(PROJECT, "zephyr", agent=agent, mode="keyword")
            assert {result.citation.uri for result in answer.results} == expected, agent
        assert await syncs.uris() == {open_source(root).name: ["README.md", "b.md"]}
        (root / "b.md").unlink()
        repository.commit()
        assert counts(await syncs(root, agent="ana")) == (1, 0, 1)
        assert counts(await syncs(root)) == (0, 1, 1), "the shared source is synced by itself"
        with pytest.raises(UsageError, match="agent: may have up to 128 characters"):
            await syncs(root, agent="*")


async def test_a_collision_is_refused_while_the_other_source_is_indexed(
    syncs: Syncs,
    redis_url: str,
    database: FreshDatabase,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A collision is found even if the other source is indexed during the check."""
    a, b = root / "a", root / "b"
    write_files(a, {"README.md": "Alpha retries payments."})
    write_files(b, {"README.md": "Beta sends invoices."})
    await syncs(a, Until.PUBLISHED)
    read_states = syncs.store.sources.states_of_others

    async def read_states_late(source: RegisteredSource) -> Any:
        states = await read_states(source)
        async with headrace(redis_url, database):
            await eventually(lambda: syncs.holds({"README.md"}), "the worker has stored it")
        return states

    monkeypatch.setattr(syncs.store.sources, "states_of_others", read_states_late)
    with pytest.raises(UsageError, match=r"README\.md belongs to source"):
        await syncs(b, Until.PUBLISHED)


async def test_the_newer_checkout_of_a_repository_wins(
    syncs: Syncs, redis_url: str, database: FreshDatabase, root: Path
) -> None:
    """The newer commit wins, and ``full`` publishes the older one."""
    old = create_repository(root / "old", {"a.md": "value is one"})
    old.git("clone", "--quiet", str(old.path), str(root / "new"))
    new = Repository(root / "new")
    new.commit({"a.md": "value is two", "b.md": "more"})
    async with headrace(redis_url, database):
        await syncs(new.path)
        report = await syncs(old.path)
        assert counts(report) == (0, 0, 0)
        assert report.older_than == new.git("rev-parse", "HEAD")
        assert "older than the indexed commit" in next(describe(report))
        assert counts(await syncs(new.path)) == (2, 0, 0)
        report = await syncs(old.path, full=True)
        assert (report.published, report.deleted) == (1, 1)
        assert len(await syncs.uris()) == 1
        assert counts(await syncs(new.path)) == (0, 2, 0)
        new.git("clone", "--quiet", "--depth=1", f"file://{new.path}", str(root / "shallow"))
        with pytest.raises(UsageError, match="git fetch --unshallow"):
            await syncs(root / "shallow")
        Repository(root / "shallow").git("fetch", "--quiet", "--unshallow")
        assert counts(await syncs(root / "shallow")) == (2, 0, 0)


async def test_a_directory_that_becomes_a_repository_keeps_its_documents(
    syncs: Syncs, redis_url: str, database: FreshDatabase, root: Path
) -> None:
    """Equal documents are not published again; those that git does not track are deleted."""
    write_files(
        root, {"a.md": "The weir is low.", "b.md": "The sluice is shut.", "draft.md": "Not yet."}
    )
    async with headrace(redis_url, database):
        assert counts(await syncs(root)) == (0, 3, 0)
        repository = create_repository(root)
        repository.write({".gitignore": "draft.md\n", "b.md": "The sluice is open."})
        repository.commit()
        steps = [(".gitignore", Reason.NEW), ("b.md", Reason.CHANGED), ("draft.md", Reason.DELETED)]
        assert await syncs.preview(root) == steps
        report = await syncs(root)
        assert (counts(report), report.kind) == ((1, 2, 1), "git")
        assert list((await syncs.uris()).values()) == [[".gitignore", "a.md", "b.md"]]
        assert counts(await syncs(root)) == (3, 0, 0)


@pytest.mark.parametrize("loss", ["FLUSHALL", "XTRIM", "documents"])
async def test_what_was_lost_is_published_again(
    syncs: Syncs, redis: Redis, redis_url: str, database: FreshDatabase, root: Path, loss: str
) -> None:
    """Changes that Redis or the index lost are published again; waiting ones are not."""
    write_files(root, {"a.md": "one", "b.md": "two"})
    await syncs(root, Until.PUBLISHED)
    waiting = await syncs(root, Until.PUBLISHED)
    assert (waiting.waiting, waiting.published) == (2, 0)
    if loss == "FLUSHALL":
        await redis.flushall()
    elif loss == "XTRIM":
        await redis.xtrim(Names().stream(Topic.CHANGED_BULK), maxlen=0)
    async with headrace(redis_url, database):
        if loss == "documents":
            assert (await syncs(root)).indexed == 2, "changes of an earlier sync are waited for"
            await change_document(database, "a.md")
            assert await syncs.preview(root) == [("a.md", Reason.LOST)]
            assert counts(await syncs(root)) == (1, 1, 0)
        else:
            assert await syncs.preview(root) == [("a.md", Reason.LOST), ("b.md", Reason.LOST)]
            report = await syncs(root)
            assert (report.published, report.indexed) == (2, 2)
        assert [*(await syncs.uris()).values()] == [["a.md", "b.md"]]
        assert counts(await syncs(root)) == (2, 0, 0)


async def change_document(database: FreshDatabase, uri: str) -> None:
    """Change the stored content hash of a document, as damage would."""
    connection = await asyncpg.connect(database.owner_url)
    await connection.execute(
        "update documents set content_hash = sha256('another text') where uri = $1", uri
    )
    await connection.close()


async def test_a_sync_that_stood_still_leaves_nothing_stale(
    syncs: Syncs,
    redis_url: str,
    database: FreshDatabase,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sync that paused while another one ran fails, and no stale document stays."""
    monkeypatch.setattr(ownership, "LEASE", timedelta(milliseconds=200))
    monkeypatch.setattr(Lease, "renew_until_lost", lambda _: asyncio.Event().wait())
    write_files(root, {"a.md": "one", "b.md": "one"})
    stopped, go_on = asyncio.Event(), asyncio.Event()
    publish = OperatorClient.publish_many

    async def stop(
        self: OperatorClient, events: list[DocumentChanged], lane: Lane
    ) -> list[Receipt]:
        stopped.set()
        await go_on.wait()
        return await publish(self, events, lane)

    async with headrace(redis_url, database):
        monkeypatch.setattr(OperatorClient, "publish_many", stop)
        slow = asyncio.create_task(syncs(root, Until.PUBLISHED))
        await stopped.wait()
        monkeypatch.setattr(OperatorClient, "publish_many", publish)
        write_files(root, {"a.md": "two"})
        (root / "b.md").unlink()
        await syncs(root)
        go_on.set()
        with pytest.raises(SourceLost, match="run it again"):
            await slow
        assert counts(await syncs(root)) == (1, 0, 0)
        await syncs(root, full=True)
        [source] = await syncs.store.sources.list(PROJECT)
        assert set(await syncs.store.sources.documents(source)) == {"a.md"}


async def test_one_sync_of_a_source_at_a_time(
    syncs: Syncs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second sync is refused with the holder's name, until the lease expires."""
    monkeypatch.setattr(ownership, "_LONGEST_WAIT", timedelta(milliseconds=100))
    write_files(root, {"a.md": "one"})
    await syncs(root, Until.PUBLISHED)
    [source] = await syncs.store.sources.list(PROJECT)
    horizon = await syncs.client.horizon()
    leased_source = await syncs.store.sources.take(
        source, timedelta(hours=1), horizon, "me on host"
    )
    with pytest.raises(SourceBusy, match="me on host"):
        await syncs(root, Until.PUBLISHED)
    await syncs.store.sources.renew(leased_source, timedelta(milliseconds=1))
    assert (await syncs(root, Until.PUBLISHED)).waiting == 1


async def test_collections_belong_to_the_documents(
    syncs: Syncs, redis_url: str, database: FreshDatabase, root: Path
) -> None:
    """Each sync sets the collections that it was given."""
    write_files(root, {"a.md": "one"})
    async with headrace(redis_url, database):
        for collections in (("rules",), (), ("rules",)):
            assert (await syncs(root, collections=collections)).published == 1
            assert (await syncs(root, collections=collections)).unchanged == 1
            [source] = await syncs.store.sources.list(PROJECT)
            [document] = (await syncs.store.sources.documents(source)).values()
            assert document.collections == collections


async def test_refused_changes_are_reported_until_they_differ(
    syncs: Syncs, redis_url: str, database: FreshDatabase, root: Path
) -> None:
    """A refused change is reported by each sync until its file differs."""
    write_files(root, {"big.md": "x" * 2000, "small.md": "x"})
    async with headrace(redis_url, database, max_document_bytes=1000):
        first = await syncs(root)
        assert list(first.rejected) == ["big.md"]
        second = await syncs(root)
        assert counts(second) == (1, 0, 0)
        assert "1000" in second.rejected["big.md"].replace(",", "")
        assert second.rejected == first.rejected
        assert any("rejected: big.md" in line for line in describe(second))
        assert (await syncs(root, full=True)).published == 2
        write_files(root, {"big.md": "y"})
        assert (await syncs(root)).rejected == {}
        assert counts(await syncs(root)) == (2, 0, 0)


async def test_files_over_the_limit_of_events_go_by_reference(
    syncs: Syncs, redis: Redis, root: Path
) -> None:
    """A large file is published by reference up to the limit, and skipped beyond it."""
    text = "a line of a file that no event can hold\n" * 120_000
    write_files(root, {"big.md": text, "too big.md": "x" * (LIMIT_BYTES + 1)})
    report = await syncs(root, Until.PUBLISHED)
    assert (report.published, dict(report.skipped)) == (1, {"oversized": 1})
    [entry] = entries_of(await redis.xrange(Names().stream(Topic.CHANGED_BULK)))
    change = DocumentChanged.from_bytes(entry.fields[b"event"]).data
    assert change.content_ref is not None
    assert await syncs.store.get_content(PROJECT, change.content_ref.sha256) == text.encode()


async def test_a_preview_publishes_nothing(syncs: Syncs, root: Path) -> None:
    """A preview publishes nothing and registers no source."""
    write_files(root, {"a.md": "one"})
    assert await syncs.preview(root) == [("a.md", Reason.NEW)]
    assert await syncs.store.sources.list(PROJECT) == []
    report = await syncs(root, Until.PUBLISHED)
    assert ", 1 published, " in next(describe(report))
    assert "indexed" not in next(describe(report))


async def test_a_killed_sync_is_made_good(
    syncs: Syncs,
    redis_url: str,
    database: FreshDatabase,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A change of a killed sync is published again, even if its file is as it was indexed."""
    monkeypatch.setattr("sources.files._SETTLED_NANOSECONDS", -(10**9))
    root = root / "root"
    write_files(root, {"a.md": "one", "b.md": "kept"})
    async with headrace(redis_url, database):
        await syncs(root)
    write_files(root, {"a.md": "two"})
    finish = Lease.finish

    async def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Lease, "finish", die)
    with pytest.raises(KeyboardInterrupt):
        await syncs(root, Until.PUBLISHED)
    monkeypatch.setattr(Lease, "finish", finish)
    write_files(root, {"a.md": "one"})
    assert await syncs.preview(root) == [("a.md", Reason.INTERRUPTED)]
    async with headrace(redis_url, database), within(60):
        assert counts(await syncs(root)) == (1, 1, 0)
        assert counts(await syncs(root)) == (2, 0, 0)
