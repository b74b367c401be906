"""Guesses at a private text of another agent: outcomes do not show a right one."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence

import asyncpg
import pytest

from events.models import (
    ContentReference,
    DocumentChange,
    DocumentChanged,
    DocumentEmbedded,
    DocumentIndexed,
    DocumentRejected,
)
from events.names import Lane, LogPosition
from runtime.embedded import EmbeddedPostgres
from store.documents.ledger import Entry
from store.generations import catalog
from store.postgres.pool import entering
from store.postgres.schema import upgrade
from store.store import Store
from tests.support.changes import reference_to
from tests.support.databases import Database
from tests.support.migrating import migrate_to, plain_owner_url
from tests.support.running import PATIENCE, Headrace, headrace
from tests.support.waiting import eventually
from tests.support.writes import MODEL, RECIPE, document_write, opened

SECRET = "The vault PIN is 4711."  # noqa: S105 - of a test
GUESSES = [f"The vault PIN is {number}." for number in range(4708, 4714)]

NEWER_COLUMNS = (
    ("chunks", "locator jsonb"),
    ("chunks", "is_example boolean"),
    ("chunks", "language text"),
    ("chunks", "surroundings text"),
    ("embeddings", "is_example boolean"),
    ("keyword_segments", "is_example boolean"),
    ("documents", "text_chunks int"),
    ("documents", "counted_position bigint"),
    ("generations", "calibration jsonb not null default '{}'"),
    ("generations", "strategies jsonb not null default '{}'"),
    ("generations", "context text not null default ''"),
)
"""Columns of later migrations that today's code writes or reads."""

NEWER_TABLES = """
create table chunk_contexts (generation_id int, chunk_id bigint, plain_hash bytea);
grant select on chunk_contexts to headrace_worker;
create table retention_marks (project_id int, tombstones_below bigint);
grant select on retention_marks to headrace_worker;
"""

CREATE_PROJECT = "select ensure_project('alpha', $1, '{}', '1', 1)"
"""Creates a project as the code of that time did."""

Figures = tuple[int, int, float]
"""Embedded chunks and tokens, and their cost."""


@pytest.fixture
async def running(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    async with headrace(redis_url, database) as worker:
        yield worker


def note(uri: str, agent: str | None, content: str) -> DocumentChanged:
    data = DocumentChange(project="docs", uri=uri, agent=agent, content=content)
    return DocumentChanged(data=data)


async def figures(running: Headrace, changes: Sequence[DocumentChanged]) -> list[Figures]:
    """Figures of each change, summed over both stages."""
    receipts = await running.client.publish_many(changes, Lane.BULK)
    spent: dict[str, Figures] = {}
    async for outcome in running.client.outcomes(receipts, PATIENCE, vectors=True):
        assert isinstance(outcome, DocumentIndexed | DocumentEmbedded)
        data = outcome.data
        now = data.chunks_embedded, data.tokens_embedded, data.cost_usd
        chunks, tokens, cost = spent.get(data.uri, (0, 0, 0.0))
        spent[data.uri] = chunks + now[0], tokens + now[1], cost + now[2]
    return [spent[change.data.uri] for change in changes]


@pytest.mark.parametrize("guesser", ["bob", None])
async def test_figures_do_not_show_that_another_agent_has_the_text(
    running: Headrace, guesser: str | None
) -> None:
    """A right guess has the same figures as a wrong one, before and after the owner's embedding."""
    at_once = [note("pin.txt", "alice", SECRET), note("early.txt", guesser, SECRET)]
    first = await figures(running, at_once)
    assert first[0] == first[1]
    assert first[1][0] == 1
    others = [text for text in GUESSES if text != SECRET]
    changes = [note(f"g{number}.txt", guesser, text) for number, text in enumerate(others)]
    assert set(await figures(running, changes)) == {first[1]}


async def test_a_guess_by_one_agent_costs_as_much_as_any_other(running: Headrace) -> None:
    """The right one of six guesses by another agent costs as much as the others."""
    await running.change("pin.txt", SECRET, agent="alice")
    changes = [note(f"g/{number}.txt", "bob", text) for number, text in enumerate(GUESSES)]
    found = await figures(running, changes)
    assert len(set(found)) == 1, found
    assert found[0][0] == 1
    again = [note(f"moved/g/{number}.txt", "bob", text) for number, text in enumerate(GUESSES)]
    assert {one[1] for one in await figures(running, again)} == {0}


async def test_a_reference_to_a_short_text_does_not_show_that_it_is_archived(
    running: Headrace,
) -> None:
    """References to an archived text and to an unknown one are rejected alike."""
    await running.change("pin.txt", SECRET, agent="alice")
    owner = await asyncpg.connect(running.database.owner_url)

    async def is_archived() -> bool:
        return bool(await owner.fetchval("select count(*) from archive_contents"))

    await eventually(is_archived, "it is archived")
    await owner.close()
    for text in ("The vault PIN is 4712.", SECRET):
        outcome = await running.change("ref.txt", agent="bob", content_ref=reference_to(text))
        assert isinstance(outcome, DocumentRejected)
        assert reference_to(text).sha256 in outcome.data.problem.detail
    # the size in a reference may be false
    big = ContentReference(sha256=reference_to(SECRET).sha256, size_bytes=100_000)
    outcome = await running.change("big.txt", agent="bob", content_ref=big)
    assert isinstance(outcome, DocumentRejected)


async def test_migrated_private_texts_have_hashes_of_their_agent(
    postgres_server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration gives stored private texts the hashes of their agent."""
    name = "with_private_texts"
    owner_url = await plain_owner_url(postgres_server, name)
    await migrate_to(owner_url, "0010")
    url = postgres_server.urls(name).worker
    both = [
        document_write("a", 1, ["known to all"]),
        document_write("b", 2, [SECRET], agent="alice"),
    ]
    with monkeypatch.context() as patch:
        patch.setattr("store.postgres.pool.check", _accept)
        patch.setattr("store.documents.ledger.record", _leave_out)  # it has newer columns
        patch.setattr("store.generations.catalog.enter_to_write", _enter)  # its function is newer
        for table, column in NEWER_COLUMNS:
            await execute(owner_url, f"alter table {table} add column {column}")
        await execute(owner_url, NEWER_TABLES)
        async with opened(url) as worker:
            async with worker.connection() as connection:
                await connection.execute(CREATE_PROJECT, MODEL)
            await Store(worker, RECIPE).apply(both)
        for table, column in NEWER_COLUMNS:
            name_of_column = column.split()[0]
            await execute(owner_url, f"alter table {table} drop column {name_of_column}")
        await execute(owner_url, "drop table chunk_contexts, retention_marks")
    await upgrade(owner_url)
    async with opened(url) as worker:
        store = Store(worker, RECIPE)
        shared, private = (write.chunks[0].content_hash for write in both)
        assert await store.known_hashes("alpha", MODEL, [shared, private]) == {shared}
        live = await store.generation("alpha")
        async with worker.scope(live.project_id, "*", live.id) as connection:
            rows = await connection.fetch(
                "select c.agent, c.content_hash, d.digest from chunks c "
                "join documents d on d.id = c.document_id and d.generation_id = c.generation_id"
            )
        found = {row["agent"]: row for row in rows}
        own = found["alice"]["content_hash"]
        assert found[""]["content_hash"] == shared
        assert own == hashlib.sha256(b"alice\0" + private).digest()
        assert await store.known_hashes("alpha", MODEL, [own]) == {own}
        assert found[""]["digest"] is not None
        assert found["alice"]["digest"] is None


async def execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _leave_out(
    _: asyncpg.Connection, _project_id: int, entries: Sequence[Entry]
) -> set[LogPosition]:
    """Record nothing, and return the positions as those of new entries."""
    return {entry.log_position for entry in entries}


async def _enter(
    connection: asyncpg.Connection, project_id: int, agent: str, _uris: Sequence[str], _chunks: int
) -> catalog.Entered:
    """Enter the live generation, without ids for new chunks and without stored documents."""
    await connection.execute(entering(project_id, agent, None))
    return catalog.Entered(await catalog.enter_live(connection, project_id), [], [])


async def _accept(_: asyncpg.Connection) -> None:
    """Accept any schema, so that this version writes to an earlier one."""
