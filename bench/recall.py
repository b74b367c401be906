"""Recall of searches that keep few of many chunks: in a small project, and by a filter.

All vectors are random, so that no model is needed. The project ``small`` has a thousandth of the
chunks, and ``large`` the others; its documents belong to 1,000 teams by their metadata. The project
``indexed`` has at most 50,000 chunks more, and an HNSW index. One of all would take most of an hour
to build, and the figures of a few chunks do not depend on it.

``recall`` is the share of the 10 nearest chunks, compared one by one in SQL, that a search returns:
``project`` in the small project, ``team`` in a thousandth of the large one, ``indexed_team`` in a
thousandth of the indexed one, and ``half`` and ``all`` in half of that and in all of it, where the
index is used. ``p50_ms`` is the median of a search, ``fill_s`` the time to insert the rows.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import asyncpg
import numpy as np

from bench.figures import Report
from bench.stack import Stack, bench_stack
from events.models import Filters
from store.generations.catalog import Generation, Projects, Recipe
from store.postgres.pool import Database
from store.search.search import Search
from store.search.vector_indexes import VectorIndexes
from store.types import SearchRequest

__all__ = ["measure"]

CHUNKS = 1_000_000
INDEXED_CHUNKS = 50_000
TEAMS = 1_000
QUESTIONS = 50
DEPTH = 10
CANDIDATES = 100
MODEL = "bench/random"
DIMENSIONS = 16
EXACT_CHUNKS = 10_000
_CHUNKS_PER_DOCUMENT = 20
_SEED = 14


class _Scope(NamedTuple):
    """Rows that a search keeps. ``condition``: the same as the filter, in SQL of its own."""

    project: str
    where: str = ""
    condition: str = "true"

    @property
    def filters(self) -> Filters:
        return Filters.model_validate({"where": self.where} if self.where else {})


_TEAM = "team = 7", "d.position % 1000 = 7"
_SCOPES = {
    "project": _Scope("small"),
    "team": _Scope("large", *_TEAM),
    "indexed_team": _Scope("indexed", *_TEAM),
    "half": _Scope("indexed", "team < 500", "d.position % 1000 < 500"),
    "all": _Scope("indexed"),
}

_DOCUMENTS = """
insert into documents (
    generation_id, uri, position, partition, kind, metadata, published_at, content_hash
)
select $1, 'notes/' || n || '.md', n, 0, 'markdown', jsonb_build_object('team', n % 1000), now(), ''
from generate_series(1, $2::int) n
"""
_CHUNKS = """
insert into chunks (
    generation_id, document_id, model_id, ordinal, start_line, end_line, tokens, content_hash,
    content
)
select d.generation_id, d.id, $2, n, n, n, 8, sha256(''), 'note'
from documents d, generate_series(1, $3::int) n
where d.generation_id = $1
"""
_VECTORS = """
insert into embeddings (generation_id, chunk_id, model_id, embedding)
select
    c.generation_id, c.id, $2,
    (
        select array_agg(sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()))
        from generate_series(1, $3::int)
        where c.id > 0
    )::real[]::halfvec
from chunks c
where c.generation_id = $1
"""
_NEAREST = """
select chunk_id
from (
    select e.chunk_id, e.embedding <=> $2::halfvec as distance
    from embeddings e
    join chunks c on c.generation_id = e.generation_id and c.id = e.chunk_id
    join documents d on d.generation_id = c.generation_id and d.id = c.document_id
    where e.generation_id = $1 and {condition}
    offset 0
) compared
order by distance, chunk_id
limit $3
"""


async def measure(chunks: int = CHUNKS, questions: int = QUESTIONS) -> Report:
    """Measure recall@10 and the median time of a search by scope."""
    async with bench_stack() as stack:
        return Report("recall", {"chunks": chunks, **await _figures(stack, chunks, questions)})


async def _figures(stack: Stack, chunks: int, questions: int) -> dict[str, float]:
    small = chunks // TEAMS
    sizes = {"small": small, "large": chunks - small, "indexed": min(chunks, INDEXED_CHUNKS)}
    database = await Database.open(stack.database_url)
    async with stack.owner() as owner:
        try:
            projects, search = Projects(database, Recipe(MODEL)), Search(database)
            began = perf_counter()
            for name, size in sizes.items():
                await projects.ensure(name)
                await _fill(owner, await search.live(name), size)
            figures = {"fill_s": round(perf_counter() - began, 1)}
            indexes = VectorIndexes(database, stack.owner_database_url, EXACT_CHUNKS)
            indexed = await search.live("indexed")
            await indexes.refresh(indexed.project_id, indexed.id, wait=True)
            for name, scope in _SCOPES.items():
                recall, p50_ms = await _measure(scope, owner, search, questions)
                figures |= {f"{name}_recall": recall, f"{name}_p50_ms": p50_ms}
        finally:
            await database.close()
    return figures


async def _fill(owner: asyncpg.Connection, generation: Generation, chunks: int) -> None:
    """Insert rows directly: the way of the write transaction is measured elsewhere."""
    model_id = await owner.fetchval("select id from ensure_model($1, $2)", MODEL, DIMENSIONS)
    per_document = min(_CHUNKS_PER_DOCUMENT, chunks)
    await owner.execute("select setseed(0.14)")
    await owner.execute(_DOCUMENTS, generation.id, chunks // per_document)
    await owner.execute(_CHUNKS, generation.id, model_id, per_document)
    await owner.execute(_VECTORS, generation.id, model_id, DIMENSIONS)
    await owner.execute("analyze documents, chunks, embeddings")


async def _measure(
    scope: _Scope, owner: asyncpg.Connection, search: Search, questions: int
) -> tuple[float, float]:
    """Return the mean recall, and the median time of a search in milliseconds."""
    generation = await search.live(scope.project)
    rng = random.Random(_SEED)
    recalls, times = [], []
    for _ in range(questions):
        vector = np.array([rng.gauss(0, 1) for _ in range(DIMENSIONS)], np.float32)
        vector /= np.linalg.norm(vector)
        expected = await _nearest(owner, generation, scope.condition, vector.tolist())
        request = SearchRequest(
            scope.project, None, None, {MODEL: vector}, scope.filters, CANDIDATES
        )
        began = perf_counter()
        candidates = await search.candidates(generation, request)
        times.append((perf_counter() - began) * 1000)
        returned = [chunk_id for chunk_id, _ in candidates.vector[MODEL][:DEPTH]]
        recalls.append(len(expected & set(returned)) / len(expected))
    return round(statistics.fmean(recalls), 4), round(statistics.median(times), 2)


async def _nearest(
    owner: asyncpg.Connection, generation: Generation, condition: str, vector: Sequence[float]
) -> set[int]:
    sql = _NEAREST.format(condition=condition)
    rows = await owner.fetch(sql, generation.id, str(list(vector)), DEPTH)
    return {row["chunk_id"] for row in rows}
