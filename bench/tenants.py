"""Recall of searches that keep few of many chunks: a small project, and filters in a large one.

All vectors are random, so that no model is needed. A small project has a thousandth of the chunks.
The large project beside it has the others and an HNSW index; its documents belong to 1,000 teams by
their metadata. ``recall`` is the share of the 10 nearest chunks, compared one by one in SQL, that
a search returns: ``project`` in the small project, ``team`` in a thousandth of the large one, and
``half`` and ``all`` in half of it and in all of it, where the index is used.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from time import perf_counter

import asyncpg
import numpy as np

from bench.figures import Report
from bench.stack import bench_stack
from events.models import Filters
from store.generations.catalog import Generation, Projects, Recipe
from store.postgres.pool import Database
from store.search.search import Search
from store.search.vector_indexes import VectorIndexes
from store.types import SearchRequest

__all__ = ["measure"]

CHUNKS = 1_000_000
TEAMS = 1_000
QUESTIONS = 50
DEPTH = 10
CANDIDATES = 100
MODEL = "bench/random"
DIMENSIONS = 16
EXACT_CHUNKS = 10_000
_CHUNKS_PER_DOCUMENT = 20
_SEED = 14

_SCOPES: Mapping[str, tuple[str, Filters, str]] = {
    "project": ("small", Filters(), "true"),
    "team": ("large", Filters.model_validate({"where": "team = 7"}), "d.position % 1000 = 7"),
    "half": ("large", Filters.model_validate({"where": "team < 500"}), "d.position % 1000 < 500"),
    "all": ("large", Filters(), "true"),
}
"""Project, filters, and the same condition in SQL of its own."""

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
    """Fill both projects, and measure recall@10 and the median time by scope."""
    figures: dict[str, float] = {"chunks": chunks}
    async with bench_stack() as stack, stack.owner() as owner:
        database = await Database.open(stack.database_url)
        try:
            projects = Projects(database, Recipe(MODEL))
            search = Search(database)
            sizes = {"small": chunks // TEAMS, "large": chunks - chunks // TEAMS}
            for name, size in sizes.items():
                project_id = await projects.ensure(name)
                generation = await search.live(name)
                await _fill(owner, generation, size)
                indexes = VectorIndexes(database, stack.owner_database_url, EXACT_CHUNKS)
                await indexes.refresh(project_id, generation.id, wait=True)
            for scope in _SCOPES:
                figures |= await _measure(scope, owner, search, questions)
        finally:
            await database.close()
    return Report("tenants", figures)


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
    scope: str, owner: asyncpg.Connection, search: Search, questions: int
) -> dict[str, float]:
    project, filters, condition = _SCOPES[scope]
    generation = await search.live(project)
    rng = random.Random(_SEED)
    recalls, times = [], []
    for _ in range(questions):
        vector = np.array([rng.gauss(0, 1) for _ in range(DIMENSIONS)], np.float32)
        vector /= np.linalg.norm(vector)
        expected = await _nearest(owner, generation, condition, vector.tolist())
        request = SearchRequest(project, None, None, {MODEL: vector}, filters, CANDIDATES)
        began = perf_counter()
        candidates = await search.candidates(generation, request)
        times.append((perf_counter() - began) * 1000)
        returned = [chunk_id for chunk_id, _ in candidates.vector[MODEL][:DEPTH]]
        recalls.append(len(expected & set(returned)) / len(expected))
    return {
        f"{scope}_recall": round(statistics.fmean(recalls), 4),
        f"{scope}_p50_ms": round(statistics.median(times), 2),
    }


async def _nearest(
    owner: asyncpg.Connection, generation: Generation, condition: str, vector: Sequence[float]
) -> set[int]:
    sql = _NEAREST.format(condition=condition)
    rows = await owner.fetch(sql, generation.id, str(list(vector)), DEPTH)
    return {row["chunk_id"] for row in rows}
