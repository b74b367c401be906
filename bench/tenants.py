"""Many tenants in one deployment: the cost of many small projects.

``idle_cpu_percent``: share of a core that an indexer uses while none of ``idle_projects`` is
written to. ``idle_edit_ms``: a change of one of them until it is searchable; ``idle_fold_ms``: from
its eighth change until its segments are merged.

``spread_ratio``: changes per second over ``spread_projects`` projects ÷ those in one project, in
an import with vectors by hashing by one worker process. Processor times are per change.

The rest is what the HNSW indexes of many projects cost the searches and writes of another one. Each
project has one chunk, so that a build takes milliseconds: what is measured is the cost of the
indexes' presence. ``plan_ratio`` divides the time in which a search of a project in the partition
with most indexes is planned by the time without any index; ``search_locks`` counts the locks of a
transaction that searches there. ``failed_transactions`` counts those that fail of ``transactions``
that are open at the same time, where each has searched and has replaced a vector.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from datetime import timedelta
from time import perf_counter

import asyncpg
import numpy as np

from bench.figures import Report
from bench.processes import usage_by_role
from bench.stack import Stack, bench_stack, until
from events.client.client import Client
from events.models import DocumentChange
from events.names import Lane
from processors.embedders.hash_embedder import HASHING_MODEL
from store.postgres.connection import connect
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, entering

__all__ = ["measure"]

IDLE_PROJECTS = 5_000
IDLE_S = 30.0
CHANGES = 600
PATIENCE = timedelta(minutes=5)
_EDITS = 8
_SETTLING_S = 5.0

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

INDEXES = 2_000
TRANSACTIONS = 50
_PLANS = 21
_BATCH = 25
_MODEL = "bench/one-chunk"
_DIMENSIONS = 16
_WATERMARK = 1_000_000_000

_INDEXED_PROJECTS = """
with project as materialized (
    select ensure_project('indexed-' || n, $1, '{}', '2', 1, '') as id
    from generate_series(1, $2::int) n
)
select count(*) from project
"""
_ROWS = """
with generation as (
    select g.id from generations g join projects p on p.id = g.project_id
    where starts_with(p.name, 'indexed-')
),
document as (
    insert into documents (generation_id, uri, position, partition, kind, published_at)
    select id, 'note.md', 1, 0, 'markdown', now() from generation
    returning generation_id, id
),
chunk as (
    insert into chunks (
        generation_id, document_id, model_id, ordinal, start_line, end_line, tokens, content_hash,
        content
    )
    select generation_id, id, $1, 0, 1, 1, 1, sha256(''), 'note' from document
    returning generation_id, id
)
insert into embeddings (generation_id, chunk_id, model_id, embedding)
select generation_id, id, $1, $2::halfvec from chunk
returning generation_id
"""
_CROWDED = """
select g.id, g.project_id
from generations g
where vectors_table(g.id) = (
    select vectors_table(id) from generations where id = any ($1::int[])
    group by 1 order by count(*) desc limit 1
) and g.id = any ($1::int[])
limit 1
"""
_LOCKS = "select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'relation'"
_REMOVE = "delete from embeddings where generation_id = {generation_id}"
_ADD = """
insert into embeddings (generation_id, chunk_id, model_id, embedding)
select generation_id, id, $2, $3::halfvec from chunks where generation_id = $1
"""


async def measure(
    *,
    idle_projects: int = IDLE_PROJECTS,
    idle_seconds: float = IDLE_S,
    changes: int = CHANGES,
    indexes: int = INDEXES,
) -> Report:
    """Measure what many projects cost.

    Half as many projects as ``changes`` take part in the import over many of them.
    """
    async with bench_stack() as stack:
        figures = {
            **await spread_figures(stack, changes, changes // 2),
            **await idle_figures(stack, idle_projects, idle_seconds),
            **await index_figures(stack, indexes),
        }
    return Report("tenants", figures)


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


async def index_figures(
    stack: Stack, indexes: int = INDEXES, transactions: int = TRANSACTIONS
) -> dict[str, float]:
    """Measure planning without and with that many indexes, then transactions at the same time."""
    async with stack.owner() as owner:
        model_id = await owner.fetchval("select id from ensure_model($1, $2)", _MODEL, _DIMENSIONS)
        await owner.execute(_INDEXED_PROJECTS, _MODEL, indexes)
        rows = await owner.fetch(_ROWS, model_id, str([1.0] * _DIMENSIONS))
        generations = [row["generation_id"] for row in rows]
        await owner.execute("analyze documents, chunks, embeddings")
        crowded = await owner.fetchrow(_CROWDED, generations)
        bare_ms, _ = await _planning(stack, crowded, model_id)
        await _build(owner, generations, model_id)
        plan_ms, locks = await _planning(stack, crowded, model_id)
        scopes = await owner.fetch(
            "select id, project_id from generations where id = any ($1::int[])",
            generations[:transactions],
        )
    return {
        "indexes": indexes,
        "bare_plan_ms": round(bare_ms, 3),
        "plan_ms": round(plan_ms, 3),
        "plan_ratio": round(plan_ms / bare_ms, 2),
        "search_locks": locks,
        "transactions": transactions,
        "failed_transactions": await _failures(stack, scopes, model_id),
    }


async def _build(owner: asyncpg.Connection, generations: Sequence[int], model_id: int) -> None:
    """Build an index for each generation; in small transactions, because of the locks."""
    for start in range(0, len(generations), _BATCH):
        async with owner.transaction():
            for generation_id in generations[start : start + _BATCH]:
                table = await owner.fetchval("select vectors_table($1)::text", generation_id)
                sql = named("vectors")["build_concurrently"].replace(" concurrently", "")
                await owner.execute(
                    sql.format(
                        name=f"embeddings_hnsw_{generation_id}_{model_id}_{_WATERMARK}",
                        table=table,
                        dimensions=_DIMENSIONS,
                        neighbours=16,
                        breadth=64,
                        generation_id=generation_id,
                        model_id=model_id,
                        watermark=_WATERMARK,
                    )
                )


def _search(generation_id: int, model_id: int) -> str:
    return named("vectors")["indexed"].format(
        generation_id=generation_id,
        model_id=model_id,
        dimensions=_DIMENSIONS,
        watermark=_WATERMARK,
        is_example="false",
        visible="",
        limit=10,
    )


async def _planning(stack: Stack, generation: asyncpg.Record, model_id: int) -> tuple[float, float]:
    """Median of the milliseconds in which a search is planned, and the number of its locks."""
    connection = await connect(stack.database_url)
    vector = str([1.0] * _DIMENSIONS)
    sql = _search(generation["id"], model_id).replace("$1", f"'{vector}'")
    try:
        times: list[float] = []
        for _ in range(_PLANS):
            async with connection.transaction():
                await connection.execute(
                    entering(generation["project_id"], EVERY_AGENT, generation["id"])
                )
                lines = await connection.fetch(f"explain (summary) {sql}")
                [planning] = [line[0] for line in lines if line[0].startswith("Planning Time")]
                times.append(float(planning.split()[2]))
                locks: int = await connection.fetchval(_LOCKS)
        return statistics.median(times), locks
    finally:
        await connection.close()


async def _failures(stack: Stack, scopes: Sequence[asyncpg.Record], model_id: int) -> int:
    """Number of the transactions that fail; each waits for all before it ends."""
    barrier = asyncio.Barrier(len(scopes))
    outcomes = await asyncio.gather(
        *(_transaction(stack, scope, model_id, barrier) for scope in scopes),
        return_exceptions=True,
    )
    failures = [outcome for outcome in outcomes if outcome is not None]
    if unexpected := [
        failure for failure in failures if not isinstance(failure, asyncpg.OutOfMemoryError)
    ]:
        raise unexpected[0]
    return len(failures)


async def _transaction(
    stack: Stack, scope: asyncpg.Record, model_id: int, barrier: asyncio.Barrier
) -> None:
    connection = await connect(stack.database_url)
    vector = np.ones(_DIMENSIONS, np.float16).tolist()
    try:
        async with connection.transaction():
            await connection.execute(entering(scope["project_id"], EVERY_AGENT, scope["id"]))
            try:
                sql = _search(scope["id"], model_id).replace("$1", f"'{vector}'")
                await connection.fetch(sql)
                await connection.execute(_REMOVE.format(generation_id=scope["id"]))
                await connection.execute(_ADD, scope["id"], model_id, str(vector))
            finally:
                await barrier.wait()
    finally:
        await connection.close()
