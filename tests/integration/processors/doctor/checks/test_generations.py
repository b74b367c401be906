"""Findings about segments, vector indexes and generations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from processors.doctor.checks.environment import check_orphans
from processors.doctor.doctor import Doctor
from processors.doctor.findings import Severity
from processors.wiring.operator_tools import OperatorTools
from store.generations.catalog import Recipe
from store.postgres.locks import replay_lock
from tests.support.databases import Database
from tests.support.doctors import LEASE, SETTLE, Indexed, examine, finding_names
from tests.support.drifts import DRIFTS
from tests.support.replays import HASHING, Struck, damage, generation_states, replay, rows, struck
from tests.support.running import headrace

LARGE = "\n".join(f"# Part {n}\n\n{f'river{n} weir ' * 65}\n" for n in range(280))


@pytest.fixture
def database(indexed_database: Database) -> Database:
    """Database of the index."""
    return indexed_database


@pytest.fixture
async def opened(
    indexed: Indexed, redis_url: str, database: Database, tmp_path: Path
) -> AsyncIterator[OperatorTools]:
    """Tools of the doctor; generations of more than two vectors get an index."""
    async with indexed.opened(
        redis_url, database, tmp_path, vector_search={"exact_chunks": 2}
    ) as opened:
        yield opened


@pytest.fixture
async def large(
    opened: OperatorTools, redis_url: str, database: Database, tmp_path: Path
) -> OperatorTools:
    """The same, with a document that has a large segment."""
    async with headrace(redis_url, database, model=HASHING, home=tmp_path) as worker:
        await worker.change("large.md", LARGE)
    return opened


@pytest.fixture
async def with_index(opened: OperatorTools) -> OperatorTools:
    """The same, with a vector index."""
    live = await opened.store.generation("docs")
    assert (await opened.indexes.refresh(live.project_id, live.id)).built == 1
    return opened


LARGE_SEGMENTS = {
    "some postings removed": (
        {"postings.broken", "postings.missing"},
        "delete from keyword_postings where generation_id = $1 and term % 7 = 0",
    ),
    "the segment removed": (
        {"postings.missing", "postings.orphaned"},
        "delete from keyword_segments where generation_id = $1 and postings is null",
    ),
    "the segment with all its postings removed": (
        {"postings.missing"},
        """
        with gone as (delete from keyword_postings where generation_id = $1)
        delete from keyword_segments where generation_id = $1 and postings is null
        """,
    ),
}


async def test_large_segments_are_repaired(large: OperatorTools, database: Database) -> None:
    """Each damage to a large segment is found and repaired."""
    for kind, (expected, statement) in LARGE_SEGMENTS.items():
        large_ones = "select from keyword_postings where generation_id = $1"
        assert await rows(database, "docs", large_ones), kind
        await damage(database, statement)
        repaired = await examine(large, repair=True)
        assert finding_names(repaired) == expected, kind
        assert (repaired.failures, repaired.remaining) == ([], []), kind


async def test_damaged_segments_are_replaced_by_a_replay(
    opened: OperatorTools, database: Database
) -> None:
    """The finding names the replay, the repair runs it, and the former index is kept."""
    before = await examine(opened)
    await damage(database, DRIFTS["a segment twice"].statement)
    [finding] = (await examine(opened)).findings
    assert finding.remedy == "headrace replay --project docs"
    repaired = await examine(opened, repair=True)
    assert (repaired.failures, repaired.remaining) == ([], [])
    assert (repaired.generation > before.generation, repaired.digest) == (True, before.digest)
    assert await generation_states(opened) == ["former", "live"]


async def test_a_replay_that_is_refused_leaves_the_other_repairs(
    opened: OperatorTools, database: Database
) -> None:
    """A half-built generation of other options is kept, and documents are repaired."""
    for kind in ("a segment twice", "a changed title"):
        await damage(database, DRIFTS[kind].statement)
    with struck("replay.building"), pytest.raises(Struck):
        await replay(opened, collection="manual")
    repaired = await examine(opened, repair=True)
    names = {finding.name for finding in repaired.remaining}
    assert finding_names(repaired) - names == {"document.rows"}
    assert names == {"generation.unfinished", "postings.doubled"}
    assert any("half built with other options" in failure for failure in repaired.failures)
    assert await generation_states(opened) == ["live", "building"]


INDEXES = {
    "vector_index.missing": "select drop_vector_index(name) from vector_indexes where $1::int > 0",
    "vector_index.bounds": "update vector_indexes set watermark = 1 where generation_id = $1",
    "vector_index.unused": "delete from vector_indexes where generation_id = $1",
    "vector_index.invalid": """
        update pg_index set indisvalid = false
        where $1::int > 0 and indexrelid::regclass::text like 'embeddings\\_hnsw\\_%'
    """,
}


@pytest.mark.parametrize("name", INDEXES)
async def test_vector_indexes_are_repaired(
    name: str, with_index: OperatorTools, database: Database
) -> None:
    """Damage to a vector index is found and repaired."""
    assert (await examine(with_index)).findings == []
    await damage(database, INDEXES[name])
    repaired = await examine(with_index, repair=True)
    assert finding_names(repaired) == {name}
    assert not repaired.failures
    assert not repaired.remaining
    [index] = await rows(database, "docs", "select * from vector_indexes where generation_id = $1")
    assert index["vectors"] > 2


async def test_indexes_of_lost_generations_are_dropped(
    with_index: OperatorTools, database: Database
) -> None:
    """Indexes of generations that no longer exist are found and dropped."""
    owner_url = database.owner_url
    assert await check_orphans(with_index, owner_url, ["docs"], repair=False) == []
    [index] = await rows(
        database, "docs", "select name from vector_indexes where generation_id = $1"
    )
    owner = await asyncpg.connect(owner_url)
    await owner.execute(f"alter index {index['name']} rename to embeddings_hnsw_9999_1_1")
    await owner.close()
    [condition] = await check_orphans(with_index, owner_url, ["docs"], repair=False)
    assert "embeddings_hnsw_9999_1_1" in condition.detail
    assert await check_orphans(with_index, owner_url, ["docs"], repair=True) == []


async def test_a_generation_that_was_left_is_named(opened: OperatorTools) -> None:
    """An unfinished generation is reported, unless a replay is running."""
    with struck("replay.building"), pytest.raises(Struck):
        await replay(opened)
    live = await opened.store.generation("docs")
    async with replay_lock(opened.database, "docs", live.project_id):
        assert (await examine(opened)).findings == []
    [finding] = (await examine(opened, repair=True)).remaining
    assert finding.name == "generation.unfinished"
    assert "headrace replay --project docs" in finding.remedy
    await replay(opened)
    assert (await examine(opened)).findings == []


async def test_a_drop_that_was_killed_is_finished(
    opened: OperatorTools, database: Database
) -> None:
    """The doctor finishes a drop that was killed."""
    await replay(opened)
    await damage(
        database,
        "update generations set state = 'dropping' where state = 'former' and $1::int > 0",
    )
    repaired = await examine(opened, repair=True)
    assert (finding_names(repaired), repaired.remaining) == ({"generation.dropping"}, [])
    assert await generation_states(opened) == ["live"]


async def test_another_recipe_is_a_note(opened: OperatorTools) -> None:
    """A recipe that differs from the settings is a note with the replay command."""
    doctor = Doctor(opened, Recipe("openai/text-embedding-3-small"), LEASE, SETTLE)
    [health] = await doctor.examine(["docs"])
    [note] = health.findings
    assert (note.name, note.severity) == ("generation.recipe", Severity.NOTE)
    assert "headrace replay --project docs --model openai/text-embedding-3-small" in note.remedy
    assert health.is_healthy
