"""Overlays: a work tree or a branch that publishes only what differs from its base."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from events.client.operator_client import OperatorClient
from events.client.questions import QueryRefused
from events.models import Filters
from gateway.auth.callers import Caller, Right
from gateway.knowledge import Knowledge
from gateway.mcp import tools
from gateway.mcp.backends import KnowledgeBackend
from gateway.sync.ownership import Lease
from gateway.sync.registration import Destination
from gateway.sync.report import SyncReport, describe
from gateway.sync.sync import Until, preview_sync, sync_source
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.errors import NotFound, UsageError
from runtime.settings import GatewaySettings
from sources import Reason, SizeLimits, Source, open_source
from store.generations.catalog import Projects, Recipe
from store.postgres.pool import Database
from store.store import Store
from store.views.batches import Batches
from store.views.listing import Listing
from tests.support.databases import Database as FreshDatabase
from tests.support.repositories import Repository, create_repository
from tests.support.running import headrace

LIMIT_BYTES = 2**23
PROJECT = "mill"
BASE = {
    "weir.md": "The weir holds the water back.",
    "docs/sluice.md": "The sluice lets the water in.",
    "docs/wheel.md": "The wheel turns the stone by water.",
}


@dataclass
class Mill:
    """Repository with a linked work tree on the branch `flood`, and syncs of both."""

    repository: Repository
    tree: Repository
    client: OperatorClient
    store: Store
    database: Database

    async def sync(self, synced: Source | Path, **destination: Any) -> SyncReport:
        return await sync_source(
            open_source(synced) if isinstance(synced, Path) else synced,
            Destination(PROJECT, **destination),
            self.client,
            self.store,
            sizes=SizeLimits(LIMIT_BYTES, LIMIT_BYTES),
            until=Until.VECTORS,
            show=lambda *_, **__: None,
        )

    @property
    def overlay(self) -> str:
        """Name of the overlay of the work tree."""
        return str(self.tree.path)

    async def texts(self, overlay: str | None = None, agent: str | None = None) -> dict[str, str]:
        """Found texts by uri; fails if two versions of a document are found."""
        seen: dict[str, str] = {}
        for mode in ("hybrid", "keyword", "vector"):
            answer = await self.client.ask(
                PROJECT, "water", mode=mode, limit=100, overlay=overlay, agent=agent
            )
            texts = [(result.citation.uri, result.content) for result in answer.results]
            assert len(dict(texts)) == len(texts), texts
            assert not seen or dict(texts) == seen, mode
            seen = dict(texts)
        return seen

    async def lines(self, pattern: str, overlay: str | None = None) -> list[str]:
        """Uris of the lines that match, page by page."""
        uris, after = [], None
        while True:
            answer = await self.client.ask(
                PROJECT, pattern, mode="exact", limit=1, after=after, overlay=overlay
            )
            uris += [result.citation.uri for result in answer.results]
            after = answer.exact.next if answer.exact else None
            if after is None:
                return uris


@pytest.fixture
async def mill(
    redis_url: str, database: FreshDatabase, worker: Database, tmp_path: Path
) -> AsyncIterator[Mill]:
    """A deployment with the synced repository, whose work tree is not synced."""
    repository = create_repository(tmp_path / "mill")
    repository.commit(dict(BASE))
    tree = Repository(tmp_path / "flood")
    repository.git("worktree", "add", "--quiet", "-b", "flood", str(tree.path))
    store = Store(worker, Recipe(HASHING_MODEL))
    async with (
        headrace(redis_url, database),
        OperatorClient.connect(redis_url, content_store=store) as client,
    ):
        mill = Mill(repository, tree, client, store, worker)
        await mill.sync(repository.path)
        yield mill


def counts(report: SyncReport) -> Sequence[int]:
    return report.unchanged, report.published, report.deleted


async def test_a_linked_work_tree_publishes_only_what_differs(mill: Mill) -> None:
    """A question in the overlay sees the base with the differences; all others see the base."""
    report = await mill.sync(mill.tree.path)
    assert counts(report) == (3, 0, 0), "the work tree is equal to its base"
    mill.tree.commit({"weir.md": "The weir lets the water pass.", "boat.md": "A boat on water."})
    (mill.tree.path / "docs" / "wheel.md").unlink()
    mill.tree.commit()
    report = await mill.sync(mill.tree.path)
    assert counts(report) == (1, 2, 1)
    assert next(describe(report)).startswith(f"overlay {mill.overlay} of mill@")
    assert counts(await mill.sync(mill.tree.path)) == (3, 0, 0)
    assert await mill.texts() == BASE
    flood = {
        "weir.md": "The weir lets the water pass.",
        "boat.md": "A boat on water.",
        "docs/sluice.md": BASE["docs/sluice.md"],
    }
    assert await mill.texts(mill.overlay) == flood
    assert await mill.lines("water", mill.overlay) == sorted(flood)
    assert await mill.lines("water") == sorted(BASE)

    await _assert_read_by_tools(mill, flood)

    # the base moves: what became equal leaves the overlay, what it never had is seen
    mill.repository.commit({"weir.md": flood["weir.md"], "mud.md": "Mud in the water."})
    await mill.sync(mill.repository.path)
    assert (await mill.texts(mill.overlay))["mud.md"] == "Mud in the water."
    report = await mill.sync(mill.tree.path)
    assert counts(report) == (3, 0, 2), "the weir is dropped, and the mud is hidden"
    assert await mill.texts(mill.overlay) == flood
    listing = Listing(mill.database)
    [base, overlay] = sorted(await listing.sources(PROJECT), key=lambda row: row.base or "")
    assert (base.documents, overlay.documents, overlay.base) == (4, 3, base.name)


async def _assert_read_by_tools(mill: Mill, texts: Mapping[str, str]) -> None:
    """Assert that the tools of MCP search, list and read the overlay's versions."""
    listing = Listing(mill.database)
    batches = Batches(mill.database, Projects(mill.database))
    knowledge = Knowledge(mill.client, listing, batches, GatewaySettings())
    caller = Caller("local", None, None, frozenset({Right.ASK, Right.READ}))
    for overlay, expected in ((mill.overlay, texts), ("unknown", BASE)):
        backend = KnowledgeBackend(caller, knowledge, overlay=overlay)
        answer = await backend.search(tools.Search(project=PROJECT, query="water", limit=50))
        assert {result.citation.uri for result in answer.results} == set(expected)
        page = await backend.documents(tools.List(project=PROJECT))
        assert [document.uri for document in page.documents] == sorted(expected)
        assert (await backend.read(PROJECT, "weir.md", 1, None)).text == expected["weir.md"]
        if "docs/wheel.md" not in expected:
            with pytest.raises(NotFound):
                await backend.document(PROJECT, "docs/wheel.md")


async def test_an_overlay_embeds_only_texts_that_its_base_lacks(mill: Mill) -> None:
    """Equal chunks take their vectors from the cache, also those of a base of one user."""
    for agent in (None, "ana"):
        long = "".join(
            f"# Part {n}\n\n{'The water of part ' + str(n) + '. ' * 40}\n\n" for n in range(8)
        )
        mill.repository.commit({"long.md": f"{long}{agent}"})
        await mill.sync(mill.repository.path, agent=agent)
        mill.tree.git("reset", "--quiet", "--hard", "main")
        mill.tree.commit({"long.md": f"{long}{agent}\n\n# More\n\nWater and more water.\n"})
        report = await mill.sync(mill.tree.path, agent=agent)
        assert (report.published, report.chunks_embedded) == (1, 1), agent


async def test_a_branch_is_read_without_a_checkout(mill: Mill) -> None:
    """An overlay of a branch has its name; a private one is seen by its user alone."""
    mill.tree.commit({"weir.md": "The zephyr weir is under water."})
    flood = open_source(mill.repository.path, branch="flood")
    with pytest.raises(UsageError, match="not synced into"):
        await mill.sync(flood, agent="ana")
    assert counts(await mill.sync(flood)) == (2, 1, 0)
    assert counts(await mill.sync(open_source(mill.repository.path, branch="flood"))) == (3, 0, 0)
    assert (await mill.texts("flood"))["weir.md"] == "The zephyr weir is under water."
    assert await mill.texts() == BASE
    await mill.sync(mill.repository.path, agent="ana")
    (mill.tree.path / "docs" / "wheel.md").unlink()
    mill.tree.commit({"weir.md": "Only ana sees the water."})
    await mill.sync(open_source(mill.repository.path, branch="flood"), agent="ana")
    answer = await mill.client.ask(PROJECT, "weir water", limit=100, overlay="flood", agent="ana")
    texts = {result.content for result in answer.results if result.citation.uri == "weir.md"}
    assert texts == {BASE["weir.md"], "Only ana sees the water."}, "the shared one and her own"
    listing = Listing(mill.store._database)
    in_overlay = await listing.overlaid(PROJECT, "ana", "flood")
    for uri, text in (
        ("weir.md", "Only ana sees the water."),
        ("docs/wheel.md", BASE["docs/wheel.md"]),  # hers is removed
    ):
        assert (await listing.lines(PROJECT, in_overlay, uri)).text == text
    assert (await mill.texts("flood", agent="bob"))["weir.md"] == "The zephyr weir is under water."
    for name in ("flud", "", f"mill@{'0' * 8}"):
        with pytest.raises((QueryRefused, UsageError), match=r"no overlay|must not be empty"):
            await mill.client.ask(PROJECT, "water", overlay=name)
    with pytest.raises(UsageError, match="has no branch '--all'"):
        open_source(mill.repository.path, branch="--all")


async def test_a_named_base_and_documents_of_other_sources(mill: Mill, tmp_path: Path) -> None:
    """Any repository or directory may be an overlay; it can't hide what is not its base's."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "tide.md").write_text("The tide of the water.")
    await mill.sync(notes, source="notes")
    mill.tree.commit({"tide.md": "Another tide of water."})
    with pytest.raises(UsageError, match=r"tide\.md belongs to source notes"):
        await mill.sync(mill.tree.path)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "tide.md").write_text("The ebb of the water.")
    await mill.sync(copy, base="notes", source="ebb")
    assert (await mill.texts("ebb"))["tide.md"] == "The ebb of the water."
    mill.tree.commit({"docs/wheel.md": "The wheel stands in the water."})
    base = (await mill.sync(mill.repository.path)).source
    report = await mill.sync(mill.tree.path / "docs", base=base, source="part")
    assert counts(report) == (1, 1, 0)
    assert (await mill.texts("part"))["weir.md"] == BASE["weir.md"], "it is outside the folder"
    for wrong in ("ebb", "nothing"):
        with pytest.raises(UsageError, match="that could be a base"):
            await mill.sync(copy, base=wrong)
    with pytest.raises(UsageError, match="whose uris have no prefix; leave out --prefix"):
        await mill.sync(copy, base="notes", source="ebb", prefix="x/")
    with pytest.raises(UsageError, match="choose another name"):
        await mill.sync(copy, source="ebb")


async def test_an_overlay_is_in_the_collections_of_its_base(mill: Mill) -> None:
    """A filter by collection finds the version of the overlay, unless that has its own ones."""
    await mill.sync(mill.repository.path, collections=("river",))
    mill.tree.commit({"weir.md": "The weir is under water."})
    for collections, uris in (((), set(BASE)), (("sea",), set(BASE) - {"weir.md"})):
        await mill.sync(mill.tree.path, collections=collections)
        answer = await mill.client.ask(
            PROJECT, "water", overlay=mill.overlay, filters=Filters(collections=("river",))
        )
        assert {result.citation.uri for result in answer.results} == uris
        contents = {result.content for result in answer.results}
        assert BASE["weir.md"] not in contents


async def test_an_interrupted_sync_of_an_overlay_is_completed(
    mill: Mill, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill before the state is saved, the next sync equals the work tree."""
    finish = Lease.finish

    async def die(*_: object) -> None:
        raise KeyboardInterrupt

    mill.tree.commit({"weir.md": "A low water.", "new.md": "New water."})
    (mill.tree.path / "docs" / "wheel.md").unlink()
    mill.tree.commit()
    monkeypatch.setattr(Lease, "finish", die)
    with pytest.raises(KeyboardInterrupt):
        await mill.sync(mill.tree.path)
    monkeypatch.setattr(Lease, "finish", finish)
    mill.tree.git("reset", "--quiet", "--hard", "HEAD~1")
    await mill.sync(mill.tree.path)
    expected = BASE | {"weir.md": "A low water.", "new.md": "New water."}
    assert await mill.texts(mill.overlay) == expected
    mill.tree.git("reset", "--quiet", "--hard", "main")
    source = open_source(mill.tree.path)
    _, steps = await preview_sync(
        source,
        Destination(PROJECT),
        mill.client,
        mill.store,
        sizes=SizeLimits(LIMIT_BYTES, LIMIT_BYTES),
        show=lambda *_, **__: None,
    )
    assert [(step.uri, step.reason) for step in steps] == [
        ("new.md", Reason.DELETED),
        ("weir.md", Reason.EQUAL),
    ]
    await mill.sync(source)
    assert await mill.texts(mill.overlay) == BASE == await mill.texts()
