"""Many tenants in one deployment: the cost of many small projects.

``idle_cpu_percent``: share of a core that an indexer uses while none of ``idle_projects`` is
written to. ``idle_edit_ms``: a change of one of them until it is searchable; ``idle_fold_ms``: from
its eighth change until its segments are merged.

``spread_ratio``: changes per second over ``spread_projects`` projects ÷ those in one project, in
an import with vectors by hashing by one worker process. Processor times are per change.
The figures of the indexes are those of ``bench.many_indexes``.
"""

from __future__ import annotations

import asyncio
import statistics
from datetime import timedelta
from time import perf_counter

from bench.figures import Report
from bench.many_indexes import INDEXES, index_figures
from bench.processes import usage_by_role
from bench.stack import Stack, bench_stack, until
from events.client.client import Client
from events.models import DocumentChange
from events.names import Lane
from processors.embedders.hash_embedder import HASHING_MODEL

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
