"""Findings about the index: each damage is found, named and repaired."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from processors.wiring.operator_tools import OperatorTools
from tests.support.databases import Database
from tests.support.doctors import drift_names, examine, forget_archive, indexed
from tests.support.drifts import DRIFTS
from tests.support.replays import damage, rows


@pytest.fixture
async def opened(
    redis_url: str, database: Database, tmp_path: Path
) -> AsyncIterator[OperatorTools]:
    """Tools of the doctor."""
    async with indexed(redis_url, database, tmp_path) as opened:
        yield opened


async def test_a_healthy_index_has_no_drift(opened: OperatorTools) -> None:
    """An index after edits, deletes, renames and private documents has no drift."""
    health = await examine(opened)
    assert health.drifts == []
    assert health.is_sound
    assert health.documents == 13


async def test_each_drift_is_found_and_repaired(opened: OperatorTools, database: Database) -> None:
    """Each drift is found by name, and the digest after its repair equals the one before."""
    before = await examine(opened)
    for kind, (expected, statement) in DRIFTS.items():
        await damage(database, statement)
        assert drift_names(await examine(opened)) == expected, kind
        repaired = await examine(opened, repair=True)
        assert drift_names(repaired) == expected, kind
        assert not repaired.failures, kind
        assert not repaired.remaining, kind
        after = await examine(opened)
        assert (drift_names(after), after.digest) == (set(), before.digest), kind


async def test_several_drifts_at_once(opened: OperatorTools, database: Database) -> None:
    """One repair fixes several drifts at once."""
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
    [drift] = (await examine(opened)).drifts
    assert drift.examples(5) == ["secret.md (private to ada)"]
    assert drift.count == 1
    assert drift.remedy == "headrace doctor --project docs --repair"


async def test_a_mended_vector_is_that_of_its_text(
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


async def test_what_the_log_has_lost_is_kept(opened: OperatorTools, database: Database) -> None:
    """Documents that the log lacks are reported and not deleted."""
    await forget_archive(database)
    await opened.redis.flushall()
    repaired = await examine(opened, repair=True)
    assert drift_names(repaired) == {"document.unlogged"}
    assert not repaired.is_sound
    assert repaired.documents == 13
    [failure] = repaired.failures
    assert "publish these documents again" in failure
