"""Batches of changes over several projects: shared reads, and shared transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis

from events.client.client import Client
from events.models import DocumentChange, DocumentIndexed, DocumentRejected
from events.names import GROUPS, Lane, LogPosition, Names, Topic
from events.streams.entries import entries_of
from processors.indexing.pipeline import PROJECTS_TOGETHER
from store.generations.catalog import Projects
from store.keys.publisher_keys import PublisherKeys
from store.postgres.pool import Database as WorkerDatabase
from store.store import Store
from store.types import Applied, DocumentWrite
from tests.support.databases import Database
from tests.support.replays import rows
from tests.support.running import PATIENCE, headrace
from tests.support.signing import add_key
from tests.support.waiting import eventually
from tests.support.writes import RECIPE, document_write

BULK = Names().stream(Topic.CHANGED_BULK)
OUTCOMES = Names().stream(Topic.OUTCOME)
DOCUMENTS = """
select d.agent, d.uri, c.content
from documents d
join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
where d.generation_id = $1
"""


def change(project: str, uri: str, content: str, **data: Any) -> DocumentChange:
    return DocumentChange(project=project, uri=uri, content=content, **data)


async def stored(database: Database, project: str) -> set[tuple[str, str, str]]:
    """Agent, uri and text of each chunk of a project's live generation."""
    return {tuple(row) for row in await rows(database, project, DOCUMENTS)}


async def outcomes(redis: Redis) -> Counter[tuple[str, str]]:
    """Numbers of published outcomes, by project and outcome."""
    reply: Any = await redis.xrange(OUTCOMES)
    counts: Counter[tuple[str, str]] = Counter()
    for entry in entries_of(reply):
        for kind in (DocumentIndexed, DocumentRejected):
            if f'"{kind.model_fields["type"].default}"'.encode() in entry.fields[b"event"]:
                data = kind.from_bytes(entry.fields[b"event"]).data
                counts[str(data.project), str(getattr(data, "outcome", "rejected"))] += 1
    return counts


async def test_a_batch_over_projects_keeps_them_apart(
    redis_url: str, database: Database, redis: Redis
) -> None:
    """Each project gets its changes only; a refused change delays no other, and none counts twice.

    Entries that are delivered again are duplicates, each in its project.
    """
    await add_key(database, "signed")
    changes = [
        change("alpha", "a.md", "Herons of alpha."),
        change("beta", "a.md", "Herons of beta."),
        change("signed", "a.md", "It has no signature."),
        change("alpha", "own.md", "A private heron.", agent="ann"),
        change("gamma", "a.md", "It expects other text.", expected_hash="0" * 64),
        change("gamma", "b.md", "Herons of gamma."),
        change("beta", "a.md", "Later herons of beta."),
    ]
    async with headrace(redis_url, database, only=["indexer"]) as running:
        receipts = await running.client.publish_many(changes, Lane.BULK)
        await running.client.wait(receipts, PATIENCE)
        expected = Counter(
            {
                ("alpha", "indexed"): 2,
                ("beta", "indexed"): 1,
                ("beta", "superseded"): 1,
                ("gamma", "indexed"): 1,
                ("gamma", "rejected"): 1,
                ("signed", "rejected"): 1,
            }
        )
        assert await outcomes(redis) == expected
        await redis.xgroup_setid(BULK, GROUPS[Topic.CHANGED_BULK], 0)
        duplicates = Counter(
            {("alpha", "duplicate"): 2, ("beta", "duplicate"): 2, ("gamma", "duplicate"): 1}
        )

        async def is_delivered_again() -> bool:
            return (await outcomes(redis)) & duplicates == duplicates

        await eventually(is_delivered_again, "duplicates are reported")
    assert await stored(database, "alpha") == {
        ("", "a.md", "Herons of alpha."),
        ("ann", "own.md", "A private heron."),
    }
    assert await stored(database, "beta") == {("", "a.md", "Later herons of beta.")}
    assert await stored(database, "gamma") == {("", "b.md", "Herons of gamma.")}
    assert await stored(database, "signed") == set()


async def test_reads_of_a_batch_take_one_statement_for_all_projects(
    worker: WorkerDatabase, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, ledger and live generations of several projects are read in one statement each."""
    names = ["alpha", "beta", "gamma"]
    key = await add_key(database, "beta")
    projects = Projects(worker, RECIPE)
    store = Store(worker, RECIPE)
    for position, project in enumerate(names, 10):
        await store.apply([document_write("a.md", position, ["text"], project=project)])
    ids = await projects.ensure_all(names)
    statements = 0
    fetch = asyncpg.Connection.fetch

    async def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal statements
        statements += 1
        return await fetch(*arguments, **options)

    monkeypatch.setattr(asyncpg.Connection, "fetch", counted)
    keys = await PublisherKeys(worker, projects).read([*names, "unknown"])
    live = await store.live_generations(names)
    positions = [(project, LogPosition(10, 0)) for project in names]
    handled = await store.handled(positions)
    assert statements <= 5, "three, and the ids of the projects, for this store and the unknown one"
    assert {name for name, each in keys.items() if each.active} == {"beta"}
    assert key.id in keys["beta"].active
    assert {name: each.project_id for name, each in live.items()} == ids
    assert handled == {("alpha", LogPosition(10, 0))}, "no position of another project counts"


async def test_projects_of_a_batch_share_a_transaction(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes of several projects are written together, and none of them alone."""
    together: list[set[str]] = []
    apply_together = Store.apply_together

    async def recorded(self: Store, writes: Sequence[DocumentWrite]) -> list[Applied] | None:
        together.append({write.project for write in writes})
        return await apply_together(self, writes)

    monkeypatch.setattr(Store, "apply_together", recorded)
    monkeypatch.delattr(Store, "apply")
    projects = [f"p{number}" for number in range(PROJECTS_TOGETHER)]
    async with Client.connect(redis_url) as client:
        receipts = await client.publish_many(
            [change(project, "a.md", f"Herons of {project}.") for project in projects], Lane.BULK
        )
        async with headrace(redis_url, database, only=["indexer"]):
            await client.wait(receipts, PATIENCE)
    assert together == [set(projects)]
    for project in projects:
        assert await stored(database, project) == {("", "a.md", f"Herons of {project}.")}


async def test_a_project_with_changes_of_several_agents_is_written_alone(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one transaction, its documents would be locked in another order than by other writers."""
    together: list[set[str]] = []
    apply_together = Store.apply_together

    async def recorded(self: Store, writes: Sequence[DocumentWrite]) -> list[Applied] | None:
        together.append({write.project for write in writes})
        return await apply_together(self, writes)

    monkeypatch.setattr(Store, "apply_together", recorded)
    changes = [change(project, "a.md", f"Herons of {project}.") for project in ("p0", "p1", "p2")]
    changes += [
        change("p1", "b.md", "Herons of ann.", agent="ann"),
        change("p3", "a.md", "Grebes."),
    ]
    async with Client.connect(redis_url) as client:
        receipts = await client.publish_many(changes, Lane.BULK)
        async with headrace(redis_url, database, only=["indexer"]):
            await client.wait(receipts, PATIENCE)
    assert together == [{"p0", "p2", "p3"}], "it does not divide those before and after it"
    assert await stored(database, "p1") == {
        ("", "a.md", "Herons of p1."),
        ("ann", "b.md", "Herons of ann."),
    }
