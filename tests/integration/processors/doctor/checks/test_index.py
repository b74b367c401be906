"""Findings about the index: each damage is found, named and repaired."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from processors.wiring.operator_tools import OperatorTools
from runtime.errors import Unavailable
from store.store import Store
from tests.support.databases import Database
from tests.support.doctors import Indexed, examine, finding_names, forget_archive
from tests.support.drifts import DRIFTS
from tests.support.replays import damage, rows, tools


@pytest.fixture
def database(indexed_database: Database) -> Database:
    """Database of the index."""
    return indexed_database


@pytest.fixture
async def opened(
    indexed: Indexed, redis_url: str, database: Database, tmp_path: Path
) -> AsyncIterator[OperatorTools]:
    """Tools of the doctor."""
    async with indexed.opened(redis_url, database, tmp_path) as opened:
        yield opened


async def test_a_healthy_index_has_no_finding(opened: OperatorTools) -> None:
    """An index after edits, deletes, renames and private documents has no findings."""
    health = await examine(opened)
    assert health.findings == []
    assert health.is_healthy
    assert health.documents == 13


async def test_each_damage_is_found_and_repaired(opened: OperatorTools, database: Database) -> None:
    """Each damage is found by name, and the digest after its repair equals the one before."""
    before = await examine(opened)
    for kind, (expected, statement) in DRIFTS.items():
        await damage(database, statement)
        repaired = await examine(opened, repair=True)
        assert finding_names(repaired) == expected, kind
        assert not repaired.failures, kind
        assert not repaired.remaining, kind
        after = await examine(opened)
        assert (finding_names(after), after.digest) == (set(), before.digest), kind


async def test_several_findings_at_once(opened: OperatorTools, database: Database) -> None:
    """One repair fixes several findings at once."""
    before = await examine(opened)
    chosen = ["a deleted chunk", "a document that the log never had", "all segments removed"]
    for kind in (*chosen, "a lost vector", "a newer place in the log"):
        await damage(database, DRIFTS[kind].statement)
    repaired = await examine(opened, repair=True)
    assert (repaired.failures, repaired.remaining) == ([], [])
    assert repaired.digest == before.digest


async def test_examples_name_documents(opened: OperatorTools, database: Database) -> None:
    """A finding gives its documents, their owners and the remedy."""
    await damage(database, DRIFTS["a changed line"].statement)
    [finding] = (await examine(opened)).findings
    assert finding.examples(5) == ["secret.md (private to ada)"]
    assert finding.count == 1
    assert finding.remedy == "headrace doctor --project docs --repair"


async def test_a_repaired_vector_is_that_of_its_text(
    opened: OperatorTools, database: Database
) -> None:
    """A repaired vector equals the original, whether it or the cache was changed."""
    query = """
        select c.content, e.embedding::text as vector, v.embedding::text as cached
        from chunks c
        join embeddings e on e.generation_id = c.generation_id and e.chunk_id = c.id
        join vector_cache v on v.content_hash = c.content_hash and v.model_id = e.model_id
        where c.generation_id = $1
        order by c.content
    """
    before = await rows(database, "docs", query)
    for kind in ("a changed vector", "a changed cache"):
        await damage(database, DRIFTS[kind].statement)
    assert await rows(database, "docs", query) != before
    await examine(opened, repair=True)
    assert await rows(database, "docs", query) == before


async def test_a_changed_vector_remains_a_finding_until_its_text_can_be_read(
    opened: OperatorTools, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """The cached vector stays while the document cannot be indexed again."""
    await damage(database, DRIFTS["a changed vector"].statement)
    async with tools(redis_url, database, home=tmp_path, max_document_bytes=1) as limited:
        repaired = await examine(limited, repair=True)
    assert {finding.name for finding in repaired.remaining} == {"vector.changed"}
    assert len(repaired.failures) == 1
    assert (await examine(opened, repair=True)).remaining == []


async def test_a_version_that_cannot_be_replaced_is_kept(
    opened: OperatorTools, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """A document ahead of the log stays until its last change can be processed."""
    await damage(database, DRIFTS["a newer place in the log"].statement)
    async with tools(redis_url, database, home=tmp_path, max_document_bytes=1) as limited:
        repaired = await examine(limited, repair=True)
    assert {finding.name for finding in repaired.remaining} == {"document.newer"}
    assert repaired.documents == 13
    [failure] = repaired.failures
    assert failure.startswith("notes/8.md: ")
    assert (await examine(opened, repair=True)).remaining == []


async def test_an_interrupted_repair_keeps_the_version_that_it_replaces(
    opened: OperatorTools, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document ahead of the log keeps its rows until the write that replaces them."""

    async def interrupt(*_: object, **__: object) -> None:
        raise Unavailable("Postgres is down")

    before = await examine(opened)
    await damage(database, DRIFTS["a newer place in the log"].statement)
    with monkeypatch.context() as patched:
        patched.setattr(Store, "rebuild", interrupt)
        repaired = await examine(opened, repair=True)
    assert repaired.failures == ["Postgres is down"]
    assert (repaired.documents, repaired.digest) == (before.documents, before.digest)
    after = await examine(opened, repair=True)
    assert (after.remaining, after.digest) == ([], before.digest)


async def test_what_the_log_has_lost_is_kept(opened: OperatorTools, database: Database) -> None:
    """Documents that the log lacks are reported and not deleted."""
    await forget_archive(database)
    await opened.redis.flushall()
    repaired = await examine(opened, repair=True)
    assert finding_names(repaired) == {"document.unlogged"}
    assert not repaired.is_healthy
    assert repaired.documents == 13
    [failure] = repaired.failures
    assert "publish these documents again" in failure
