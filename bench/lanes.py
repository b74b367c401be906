"""Latency of a live change and of a question while the same worker processes a bulk import.

One worker process does everything. ``live_ratio`` is the median time from publishing a live change
to its outcome during the import, divided by the idle median; ``ask_ratio`` is the same for a
question. ``edit_p50_ms``: one function of a module is edited; time from its publish until a
question returns the new text by vector and by keyword, without other load.
"""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import count
from time import perf_counter

from bench.corpus import python_files, questions
from bench.figures import Report, percentile
from bench.stack import bench_stack
from events.client.client import Client
from events.models import DocumentChange
from events.names import Lane

__all__ = ["measure"]

PROJECT = "lanes"
SAMPLES = 60
PATIENCE = timedelta(minutes=2)


async def measure() -> Report:
    """Measure milliseconds of live changes and of questions, idle and during an import; ratios."""
    texts = iter(questions(4 * SAMPLES + 1, seed=23))
    numbers = count()
    async with bench_stack() as stack, stack.worker(), Client.connect(stack.redis_url) as client:

        async def change() -> None:
            await _publish(client, f"live/{next(numbers)}.md", f"# Note\n\n{next(texts)}\n")

        async def ask() -> None:
            await client.ask(PROJECT, next(texts))

        await change()
        edits = await _edits(client)
        idle_changes, idle_questions = await _times(change), await _times(ask)
        imported = await client.publish_many(_import(), lane=Lane.BULK)
        await client.wait(imported[:1], PATIENCE)
        busy_changes, busy_questions = await _times(change), await _times(ask)
    return Report(
        "lanes",
        {
            "live_ratio": _ratio(busy_changes, idle_changes),
            "ask_ratio": _ratio(busy_questions, idle_questions),
            "edit_p50_ms": round(statistics.median(edits), 1),
            "edit_p99_ms": round(percentile(edits, 99), 1),
            "live_idle_p50_ms": round(statistics.median(idle_changes), 1),
            "live_importing_p50_ms": round(statistics.median(busy_changes), 1),
            "live_importing_p99_ms": round(percentile(busy_changes, 99), 1),
            "ask_idle_p50_ms": round(statistics.median(idle_questions), 1),
            "ask_importing_p50_ms": round(statistics.median(busy_questions), 1),
            "ask_importing_p99_ms": round(percentile(busy_questions, 99), 1),
            "imported_documents": len(imported),
        },
    )


async def _edits(client: Client) -> list[float]:
    """Return the milliseconds of each edit until both retrievers return it.

    Raises:
        RuntimeError: an answer lacks the new text, or one retriever did not return it.
    """
    path, content = next(file for file in python_files() if "\ndef " in file[1])
    await _publish(client, path, content)
    times: list[float] = []
    for number in range(SAMPLES):
        word = f"heron{number}"
        edited = content.replace("\ndef ", f"\ndef {word}_", 1)
        began = perf_counter()
        receipt = await client.upsert(PROJECT, path, edited)
        answer = await client.ask(PROJECT, f"{word}_", min_event=receipt.token, vectors=True)
        times.append((perf_counter() - began) * 1000)
        best = answer.results[0]
        if answer.stale or word not in best.content or best.match_type != "hybrid":
            raise RuntimeError(f"edit {number} of {path} was not found by vector and keyword")
    return times


async def _publish(client: Client, uri: str, content: str) -> None:
    receipt = await client.upsert(PROJECT, uri, content)
    await client.wait([receipt], PATIENCE)


def _import() -> list[DocumentChange]:
    return [
        DocumentChange(project=PROJECT, uri=uri, content=content)
        for uri, content in python_files()[:900]
    ]


async def _times(work: Callable[[], Awaitable[None]]) -> list[float]:
    times: list[float] = []
    for _ in range(SAMPLES):
        started = perf_counter()
        await work()
        times.append((perf_counter() - started) * 1000)
    return times


def _ratio(busy: list[float], idle: list[float]) -> float:
    return round(statistics.median(busy) / statistics.median(idle), 2)
