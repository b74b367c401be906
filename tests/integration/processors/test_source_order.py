"""Order of changes from sources, in indexing, replay, doctor and compaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from events.models import DocumentIndexed, DocumentRejected
from events.names import Names
from events.streams.dead_letters import DeadLetters
from processors.wiring.operator_tools import OperatorTools
from store.generations.catalog import Projects, Recipe
from store.sources import LeasedSource, Sources
from tests.support.databases import Database
from tests.support.doctors import examine, is_archived
from tests.support.replays import HASHING, damage, replay, rows, tools
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually
from tests.support.writes import opened

STORED = """
    select uri, position, deleted, digest, source_id, source_revision
    from documents
    where generation_id = $1
    order by uri
"""


async def taken(worker: Headrace, name: str) -> LeasedSource:
    """Take the source's next revision."""
    async with opened(worker.database.worker_url) as postgres:
        sources = Sources(postgres, Projects(postgres, Recipe(HASHING)))
        source = await sources.register("docs", name, name, "directory", f"/{name}")
        found = await sources.take(source, timedelta(hours=1), await worker.client.horizon())
        await sources.release(found)
    return found


@pytest.fixture
async def log(redis_url: str, database: Database, tmp_path: Path) -> AsyncIterator[OperatorTools]:
    """Archived changes of two sources and an agent, some of them stale or in conflict."""
    async with (
        headrace(redis_url, database, model=HASHING, home=tmp_path) as worker,
        tools(redis_url, database, home=tmp_path) as opened_tools,
    ):
        stalled, newer = await taken(worker, "guide"), await taken(worker, "guide")
        code = await taken(worker, "code")
        for uri, content, take in (
            ("a.md", "second version", newer),
            ("a.md", "first version, stalled", stalled),
            ("b.md", "of code", code),
            ("b.md", "of guide, in conflict", newer),
            ("b.md", "of guide, stalled and in no conflict", stalled),
            ("c.md", "of guide", newer),
        ):
            await worker.change(uri, f"# {uri}\n\n{content}\n", origin=take.origin)
        await worker.change("c.md", "# An agent's\n")
        await worker.change("d.md", "# D\n", origin=newer.origin)
        await worker.change("e.md", "# D\n", change="rename", old_uri="d.md", origin=newer.origin)
        await worker.change("d.md", "# D, stalled\n", origin=stalled.origin)
        await eventually(lambda: is_archived(opened_tools), "everything is archived")
    async with tools(redis_url, database, home=tmp_path) as opened_tools:
        yield opened_tools


async def test_a_replay_gives_the_same_index_and_the_doctor_agrees(
    log: OperatorTools, database: Database
) -> None:
    """Replays from streams and archive, and from a compacted archive, give the same index."""
    before = await rows(database, "docs", STORED)
    assert [(row["uri"], row["deleted"]) for row in before] == [
        ("a.md", False),
        ("b.md", False),
        ("c.md", False),
        ("d.md", True),
        ("e.md", False),
    ]
    assert (await examine(log)).findings == []
    assert (await replay(log)).switched
    assert await rows(database, "docs", STORED) == before
    await log.redis.flushall()
    compacted = await log.archive.compact("docs", datetime.now(UTC) + timedelta(hours=1))
    assert compacted.dropped_events == 6
    assert (await replay(log)).switched
    assert await rows(database, "docs", STORED) == before
    assert (await examine(log)).findings == []


async def test_the_doctor_names_the_source_of_a_document(
    log: OperatorTools, database: Database
) -> None:
    """A finding names the source of the document, and the repair restores the document."""
    await damage(
        database,
        "update documents set content_hash = repeat('0', 64) "
        "where generation_id = $1 and uri = 'b.md'",
    )
    health = await examine(log, repair=True)
    named = {subject.label for finding in health.findings for subject in finding.subjects}
    assert named == {"b.md (source code)"}
    assert health.remaining == []


async def test_a_conflict_is_rejected_with_both_names(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """A conflict is rejected with both sources; it can be redriven after the other one's delete."""
    async with headrace(redis_url, database, model=HASHING, home=tmp_path) as worker:
        guide, code = await taken(worker, "guide"), await taken(worker, "code")
        await worker.change("a.md", "# Of guide\n", origin=guide.origin)
        refused = await worker.change("a.md", "# Of code\n", origin=code.origin)
        assert isinstance(refused, DocumentRejected)
        assert refused.data.problem.type == "SourceConflict"
        assert refused.data.problem.detail == (
            "a.md is a document of source guide, so source code may not change it; "
            "sync one of them with --prefix"
        )
        gone = await worker.change("a.md", change="delete", origin=guide.origin)
        assert isinstance(gone, DocumentIndexed)
        async with tools(redis_url, database, home=tmp_path) as opened_tools:
            letters = DeadLetters(opened_tools.redis, Names())
            [letter] = await eventually(letters.list, "it is a dead letter")
            await letters.redrive(letter.id)
        await eventually(lambda: finds(worker, "code"), "the redriven change is applied")


async def finds(worker: Headrace, word: str) -> bool:
    """True if keyword search finds the word."""
    answer = await worker.client.ask("docs", word, mode="keyword")
    return bool(answer.results)
