"""Many tenants in one deployment: recall of small projects, and the cost of many of them.

Recall is measured of searches that keep few of many chunks: a small project, and filters in a
large one. All vectors are random, so that no model is needed. A small project has a thousandth of
the chunks. The large project beside it has the others and an HNSW index; its documents belong to
1,000 teams by their metadata. ``recall`` is the share of the 10 nearest chunks, compared one by one
in SQL, that a search returns: ``project`` in the small project, ``team`` in a thousandth of the
large one, and ``half`` and ``all`` in half of it and in all of it, where the index is used.

``idle_cpu_percent``: share of a core that an indexer uses while none of ``idle_projects`` is
written to. ``idle_edit_ms``: a change of one of them until it is searchable; ``idle_fold_ms``: from
its eighth change until its segments are merged.

``spread_ratio``: changes per second over ``spread_projects`` projects ÷ those in one project, in
an import with vectors by hashing by one worker process. Processor times are per change.
The figures of the indexes are those of ``bench.many_indexes``.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Mapping, Sequence
from datetime import timedelta
from time import perf_counter

import asyncpg
import numpy as np

from bench.figures import Report
from bench.many_indexes import INDEXES, index_figures
from bench.processes import usage_by_role
from bench.stack import Stack, bench_stack, until
from events.client.client import Client
from events.models import DocumentChange, Filters
from events.names import Lane
from processors.embedders.hash_embedder import HASHING_MODEL
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
IDLE_PROJECTS = 5_000
IDLE_S = 30.0
CHANGES = 600
SPREAD_PROJECTS = 300
PATIENCE = timedelta(minutes=5)
_EDITS = 8
_SETTLING_S = 5.0
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

_PROJECTS = """
select ensure_project('idle-' || n, $1, '{}', '2', 1, '') from generate_series(1, $2::int) n
"""
_IS_SETTLED = """
select
    not exists (select from pending_vectors)
    and (select sum(entries) from archive_segments where kind = 'events') >= $1
"""
_IS_FOLDED = """
select not exists (
    select
    from keyword_segments s
    join generations g on g.id = s.generation_id
    join projects p on p.id = g.project_id
    where p.name = 'idle-1'
    having count(*) >= 8
)
"""


async def measure(
    chunks: int = CHUNKS,
    questions: int = QUESTIONS,
    *,
    idle_projects: int = IDLE_PROJECTS,
    idle_seconds: float = IDLE_S,
    changes: int = CHANGES,
    indexes: int = INDEXES,
) -> Report:
    """Measure what many projects cost, then recall@10 and the median time by scope.

    Half as many projects as ``changes`` take part in the import over many of them.
    """
    async with bench_stack() as stack:
        figures = {
            "chunks": chunks,
            **await spread_figures(stack, changes, changes // 2),
            **await idle_figures(stack, idle_projects, idle_seconds),
            **await _recall_figures(stack, chunks, questions),
            **await index_figures(stack, indexes),
        }
    return Report("tenants", figures)


async def _recall_figures(stack: Stack, chunks: int, questions: int) -> dict[str, float]:
    figures: dict[str, float] = {}
    database = await Database.open(stack.database_url)
    async with stack.owner() as owner:
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
    return figures


async def idle_figures(stack: Stack, projects: int, seconds: float) -> dict[str, float]:
    """Measure an indexer beside idle projects, and the changes of one of them."""
    worker = stack.worker("--only", "indexer", HEADRACE_MODEL=HASHING_MODEL)
    async with stack.owner() as owner, Client.connect(stack.redis_url) as client:
        await owner.execute(_PROJECTS, HASHING_MODEL, projects)
        async with worker:
            edits = [await _edit(client, number) for number in range(_EDITS)]
            began = perf_counter()

            async def is_folded() -> bool:
                return bool(await owner.fetchval(_IS_FOLDED))

            await until(is_folded, "the segments are merged", PATIENCE, every_seconds=0.02)
            fold_s = perf_counter() - began
            await asyncio.sleep(_SETTLING_S)
            before, began = _cpu_s("worker"), perf_counter()
            await asyncio.sleep(seconds)
            share = (_cpu_s("worker") - before) / (perf_counter() - began)
    return {
        "idle_projects": projects,
        "idle_cpu_percent": round(100 * share, 2),
        "idle_edit_ms": round(statistics.median(edits), 1),
        "idle_fold_ms": round(1000 * fold_s, 1),
    }


async def _edit(client: Client, number: int) -> float:
    """Return the milliseconds until a change is searchable by keyword."""
    began = perf_counter()
    receipt = await client.upsert("idle-1", f"{number}.md", f"# Edit\n\nHeron {number} nests.\n")
    await client.wait([receipt], PATIENCE)
    return 1000 * (perf_counter() - began)


async def spread_figures(stack: Stack, changes: int, projects: int) -> dict[str, float]:
    """Measure imports into one project and over many; the first of each creates the projects.

    Each begins when the vectors and the archive files of the import before are written.
    """
    figures: dict[str, float] = {"spread_projects": projects}
    published = 0
    worker = stack.worker(HEADRACE_MODEL=HASHING_MODEL)
    async with stack.owner() as owner, worker, Client.connect(stack.redis_url) as client:

        async def is_settled() -> bool:
            return bool(await owner.fetchval(_IS_SETTLED, published))

        for name, count in (("one", 1), ("spread", projects)):
            await _import(client, name, count, changes, 0)
            published += changes
            await until(is_settled, "vectors and archive files", PATIENCE, every_seconds=0.2)
            before = {role: _cpu_s(role) for role in ("worker", "postgres")}
            seconds = await _import(client, name, count, changes, 1)
            figures[f"{name}_changes_per_s"] = round(changes / seconds, 1)
            for role, cpu_s in before.items():
                spent_ms = 1000 * (_cpu_s(role) - cpu_s) / changes
                figures[f"{name}_{role}_cpu_ms"] = round(spent_ms, 2)
            published += changes
            await until(is_settled, "vectors and archive files", PATIENCE, every_seconds=0.2)
    ratio = figures["spread_changes_per_s"] / figures["one_changes_per_s"]
    return {"spread_ratio": round(ratio, 3), **figures}


async def _import(client: Client, name: str, projects: int, changes: int, turn: int) -> float:
    """Return the seconds until all changes are indexed."""
    began = perf_counter()
    receipts = await client.publish_many(
        [
            DocumentChange(
                project=f"{name}-{number % projects}",
                uri=f"{turn}/{number}.md",
                content=f"# Note {number} of turn {turn}\n\nHeron {number % 50} nests here.\n",
            )
            for number in range(changes)
        ],
        Lane.BULK,
    )
    await client.wait(receipts, PATIENCE)
    return perf_counter() - began


def _cpu_s(role: str) -> float:
    return sum(usage.cpu_s for usage in usage_by_role()[role])


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
