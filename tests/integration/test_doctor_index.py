"""Drifts made by hand: each is found and named, mended, and the index is what it was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from processors.reconciling.case import Desk
from processors.reconciling.doctor import Doctor, Health
from processors.replaying.opening import Tools
from tests.support.databases import Database
from tests.support.replays import HASHING, damage, notes, tools
from tests.support.running import headrace

SETTLE = timedelta(milliseconds=50)


@pytest.fixture
async def opened(redis_url: str, database: Database) -> AsyncIterator[Tools]:
    """What the doctor works with; a worker has indexed the project ``docs``, and ended."""
    async with headrace(redis_url, database, model=HASHING) as worker:
        await notes(worker)
        await worker.change("listed.md", "# Listed\n", collections=("manual",))
    async with tools(redis_url, database) as opened:
        yield opened


@pytest.fixture
def doctor(opened: Tools) -> Doctor:
    return Doctor(Desk(opened, None, lease=timedelta(milliseconds=10)), SETTLE)


async def examine(doctor: Doctor, *, repair: bool = False) -> Health:
    """The health of ``docs``."""
    [health] = await doctor.examine(["docs"], repair=repair)
    return health


def names(health: Health) -> set[str]:
    """What was found at first."""
    return {drift.name for drift in health.drifts}


async def test_a_healthy_index_has_no_drift(doctor: Doctor) -> None:
    """Edits, deletes, renames and private documents are all what the log says."""
    health = await examine(doctor)
    assert names(health) == set()
    assert health.is_sound
    assert health.documents == 13


DAMAGE: dict[str, tuple[set[str], str]] = {
    "a deleted chunk": (
        {"document.rows"},
        "delete from chunks where generation_id = $1 and document_id ="
        " (select id from documents where generation_id = $1 and uri = 'notes/5.md')",
    ),
    "a changed text": (
        {"document.rows"},
        "update chunks set content = content || ' indeed' where generation_id = $1"
        " and id = (select min(id) from chunks where generation_id = $1)",
    ),
    "a changed line": (
        {"document.rows"},
        "update chunks set end_line = end_line + 1 where generation_id = $1 and agent = 'ada'",
    ),
    "a changed title": (
        {"document.rows"},
        "update documents set title = 'Other' where generation_id = $1 and uri = 'notes/6.md'",
    ),
    "changed metadata": (
        {"document.rows"},
        "update documents set metadata = '{\"a\": 1}' where generation_id = $1"
        " and uri = 'notes/6.md'",
    ),
    "a lost collection": (
        {"document.rows"},
        "delete from document_collections where generation_id = $1",
    ),
    "another content hash": (
        {"document.content", "document.rows"},
        "update documents set content_hash = repeat('0', 64) where generation_id = $1"
        " and uri = 'notes/6.md'",
    ),
    "a revived tombstone": (
        {"document.not_deleted", "document.rows"},
        "update documents set deleted = false where generation_id = $1 and uri = 'notes/2.md'",
    ),
    "a living document called deleted": (
        {"document.deleted", "document.rows"},
        "update documents set deleted = true where generation_id = $1 and uri = 'notes/6.md'",
    ),
    "a removed document": (
        {"document.missing"},
        "with gone as (delete from chunks c using documents d where c.generation_id = $1"
        " and d.generation_id = $1 and d.id = c.document_id and d.uri = 'notes/7.md')"
        " delete from documents where generation_id = $1 and uri = 'notes/7.md'",
    ),
    "a removed tombstone": (
        {"document.missing"},
        "delete from documents where generation_id = $1 and uri = 'notes/3.md'",
    ),
    "a document the log never had": (
        {"document.unknown", "document.rows"},
        "insert into documents (generation_id, uri, position, partition, kind, published_at,"
        " digest) select $1, 'intruder.md', position, partition, kind, now(), digest"
        " from documents where generation_id = $1 and uri = 'notes/7.md'",
    ),
    "an older place in the log": (
        {"document.older"},
        "update documents set position = position - 2097152 where generation_id = $1"
        " and uri = 'notes/8.md'",
    ),
    "a newer place in the log": (
        {"document.newer"},
        "update documents set position = position + 2 where generation_id = $1"
        " and uri = 'notes/8.md'",
    ),
    "a lost vector": (
        {"vector.missing"},
        "delete from embeddings where generation_id = $1"
        " and chunk_id = (select max(id) from chunks where generation_id = $1)",
    ),
    "a changed vector": (
        {"vector.changed"},
        "update embeddings e set embedding = o.embedding from embeddings o"
        " where e.generation_id = $1 and o.generation_id = $1"
        " and e.chunk_id = (select min(id) from chunks where generation_id = $1)"
        " and o.chunk_id = (select max(id) from chunks where generation_id = $1)",
    ),
    "a changed cache": (
        {"vector.changed"},
        "update vector_cache set embedding = ('[1' || repeat(',0', 383) || ']')::halfvec"
        " where $1::int > 0 and content_hash = (select content_hash from chunks"
        " where generation_id = $1 order by id limit 1)",
    ),
    "a vector of another width": (
        {"vector.foreign"},
        "update embeddings set embedding = '[1,0,0]'::halfvec where generation_id = $1"
        " and chunk_id = (select max(id) from chunks where generation_id = $1)",
    ),
    "a vector of another model": (
        {"vector.missing", "vector.foreign"},
        "with other as (insert into models (name, dimensions) values ('other/model', 384)"
        " returning id) update embeddings set model_id = (select id from other)"
        " where generation_id = $1"
        " and chunk_id = (select max(id) from chunks where generation_id = $1)",
    ),
    "a removed segment": (
        {"postings.missing"},
        "delete from keyword_segments where generation_id = $1 and segment_id ="
        " (select max(segment_id) from keyword_segments where generation_id = $1)",
    ),
    "all segments removed": (
        {"postings.missing"},
        "delete from keyword_segments where generation_id = $1",
    ),
    "a shortened segment": (
        {"postings.broken", "postings.missing"},
        "update keyword_segments set documents = substring(documents from 13)"
        " where generation_id = $1 and segment_id ="
        " (select max(segment_id) from keyword_segments where generation_id = $1)",
    ),
    "shortened postings": (
        {"postings.broken", "postings.missing"},
        "update keyword_segments set postings = substring(postings for 20)"
        " where generation_id = $1 and segment_id ="
        " (select max(segment_id) from keyword_segments where generation_id = $1)",
    ),
    "a segment twice": (
        {"postings.doubled"},
        "insert into keyword_segments (generation_id, chunks, terms, documents, postings)"
        " select generation_id, chunks, terms, documents, postings from keyword_segments"
        " where generation_id = $1 and segment_id ="
        " (select max(segment_id) from keyword_segments where generation_id = $1)",
    ),
    "a ledger without some outcomes": (
        {"ledger.missing"},
        "delete from ledger where $1::int > 0 and position in"
        " (select position from ledger order by position offset 5 limit 4)",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
async def test_drift_is_found_and_mended(kind: str, doctor: Doctor, database: Database) -> None:
    """Found by name, mended, and the digest is that of before."""
    expected, statement = DAMAGE[kind]
    before = await examine(doctor)
    damage(database, statement)
    found = await examine(doctor)
    assert names(found) == expected
    repaired = await examine(doctor, repair=True)
    assert (names(repaired), repaired.failures) == (expected, [])
    assert repaired.remaining == []
    after = await examine(doctor)
    assert (names(after), after.digest) == (set(), before.digest)
