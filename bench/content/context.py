"""Figures of contexts over a corpus, with a scripted language model on loopback."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from bench.content.language_model import LanguageModel, running_model
from bench.stack import Stack, bench_stack
from events.client.client import Client
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.errors import Unavailable
from store.generations.inventory import Inventory
from store.postgres.pool import EVERY_AGENT, Database
from store.views import statistics
from store.views.statistics import ProjectStatistics

__all__ = ["figures"]

_PROJECT = "contexts"
_MODEL = "openai/gpt-4o-mini"
_PATIENCE = timedelta(minutes=3)
_POLL_SECONDS = 0.1
_BUDGET_USD = 1.0
_MOST_PAGES = 10
_INLINE_BYTES = 4 * 2**20


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Count the requests for the pages of a corpus, after an edit of each, and without a budget.

    Args:
        corpus: folder with pages (``.html``); without any there are no figures.

    Raises:
        Unavailable: the contexts were not written within three minutes.
    """
    pages = sorted(corpus.rglob("*.html"))[:_MOST_PAGES]
    if not pages:
        return {}
    return asyncio.run(_measure([page.read_text("utf-8", "replace") for page in pages]))


async def _measure(pages: Sequence[str]) -> dict[str, float | int | str]:
    async with bench_stack() as stack, running_model() as model:
        began = time.monotonic()
        async with (
            _worker(stack, model, _BUDGET_USD),
            Client.connect(stack.redis_url, inline_limit_bytes=_INLINE_BYTES) as client,
        ):
            await _publish(client, pages)
            counted = await _until(stack, lambda counts: counts.contexts_waiting == 0)
            seconds = time.monotonic() - began
            first, model.requests[:] = list(model.requests), []
            await _publish(client, [_edited(page) for page in pages])
            await _until(stack, lambda counts: counts.contexts_waiting == 0)
            edits, model.requests[:] = list(model.requests), []
        async with (
            _worker(stack, model, 0.0),
            Client.connect(stack.redis_url, inline_limit_bytes=_INLINE_BYTES) as client,
        ):
            await _publish(client, [_edited(_edited(page)) for page in pages])
            unpaid = await _until(stack, lambda counts: counts.contexts_waiting > 0)
    asked = sum(len(request.numbers) for request in first)
    return {
        "pages": len(pages),
        "windows": len({request.window for request in first}),
        "requests": len(first),
        "chunks asked for": asked,
        "chunks without context": counted.contexts_without,
        "seconds": round(seconds, 1),
        "requests after an edit of each page": len(edits),
        "chunks asked for after the edits": sum(len(request.numbers) for request in edits),
        "requests per window": round(len(first) / len({request.window for request in first}), 2),
        "chunks asked for per edit": round(
            sum(len(request.numbers) for request in edits) / len(pages), 2
        ),
        "requests without a budget": len(model.requests),
        "chunks that wait without a budget": unpaid.contexts_waiting,
    }


def _worker(stack: Stack, model: LanguageModel, budget_usd: float) -> Any:
    context = {"model": _MODEL, "base_url": model.base_url, "budget_usd_per_day": budget_usd}
    return stack.worker(HEADRACE_CONTEXT=json.dumps(context), HEADRACE_MODEL=HASHING_MODEL)


def _edited(page: str) -> str:
    """Add a paragraph at the end of a page."""
    paragraph = f"<p>It was edited at {len(page)} characters.</p>"
    head, end, tail = page.rpartition("</p>")
    return f"{head}{end}{paragraph}{tail}"


async def _publish(client: Client, pages: Sequence[str]) -> None:
    """Publish pages and wait until they are searchable."""
    receipts = [
        await client.upsert(_PROJECT, f"{number}.html", page) for number, page in enumerate(pages)
    ]
    await client.wait(receipts, _PATIENCE, vectors=True)


async def _until(stack: Stack, holds: Callable[[ProjectStatistics], bool]) -> ProjectStatistics:
    database = await Database.open(stack.database_url)
    try:
        return await _poll(lambda: _counts(database), holds)
    finally:
        await database.close()


async def _poll(
    read: Callable[[], Awaitable[ProjectStatistics]], holds: Callable[[ProjectStatistics], bool]
) -> ProjectStatistics:
    deadline = time.monotonic() + _PATIENCE.total_seconds()
    while time.monotonic() < deadline:
        counts = await read()
        if holds(counts):
            return counts
        await asyncio.sleep(_POLL_SECONDS)
    raise Unavailable(f"contexts were not written within {_PATIENCE}")


async def _counts(database: Database) -> ProjectStatistics:
    [project_id] = (await Inventory(database).projects(_PROJECT)).values()
    async with database.scope(project_id, EVERY_AGENT) as connection:
        return await statistics.measure(connection, project_id, _PROJECT)
