"""Time from a saved file to an answer with it, while `headrace watch` follows a directory.

``save_p50_ms``: a file is saved; time until a question by keyword returns its new text, on an idle
machine. ``burst_batches``: syncs after all files were saved within about a second; ``burst_s``:
time until the last of them is published. ``steady_s``: a file is saved every 100 ms; time from the
first of these saves until a question returns its text.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count, cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.corpus import questions
from bench.figures import Report, percentile
from bench.stack import Stack, bench_stack, until
from events.client.client import Client
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.errors import ConfigurationError

__all__ = ["measure"]

PROJECT = "watched"
FILES = 5_000
SAVES = 40
LINES = 8
QUESTIONS = 10_000
STEADY_EVERY_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 0.25
_ASK_EVERY_SECONDS = 0.01
_PATIENCE = timedelta(minutes=2)


class _Watch:
    """Output of a running watch: the report of each sync."""

    def __init__(self) -> None:
        self.reports: list[Mapping[str, Any]] = []

    @property
    def published(self) -> int:
        """Number of documents published so far."""
        return sum(report["published"] for report in self.reports)

    async def read(self, output: asyncio.StreamReader) -> None:
        """Collect reports until the process ends."""
        async for line in output:
            self.reports.append(json.loads(line))

    async def wait_for(self, published: int) -> None:
        """Wait until this many documents are published in total."""

        async def is_published() -> bool:
            return self.published >= published

        await until(
            is_published, f"{published:,} documents are published", _PATIENCE, _ASK_EVERY_SECONDS
        )


async def measure(files: int = FILES, saves: int = SAVES) -> Report:
    """Watch a directory of notes and save them: one by one, all at once, and one all the time.

    Raises:
        ConfigurationError: the watch ended, or a saved text was not found in time.
    """
    texts = cycle(questions(QUESTIONS))
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        root = Path(directory)
        paths = [root / f"{number % 100}" / f"{number}.md" for number in range(files)]
        for path in paths:
            path.parent.mkdir(exist_ok=True)
        _write_all(paths, texts)
        async with (
            bench_stack() as stack,
            stack.worker(HEADRACE_MODEL=HASHING_MODEL),
            Client.connect(stack.redis_url) as client,
            _watching(stack, root) as watch,
        ):
            await watch.wait_for(files)
            await _settled(stack, watch)
            times = [
                await _save(client, path, f"heron{number}")
                for number, path in enumerate(paths[:saves])
            ]
            before = len(watch.reports)
            written_s, burst_s = await _burst(watch, paths, texts)
            batches = len(watch.reports) - before
            await _settled(stack, watch)
            steady_s = await _steady(client, root / "steady.md")
    return Report(
        "watch",
        {
            "files": files,
            "save_p50_ms": round(statistics.median(times), 1),
            "save_p99_ms": round(percentile(times, 99), 1),
            "burst_batches": batches,
            "burst_written_s": round(written_s, 2),
            "burst_s": round(burst_s, 2),
            "steady_s": round(steady_s, 2),
        },
    )


@asynccontextmanager
async def _watching(stack: Stack, root: Path) -> AsyncIterator[_Watch]:
    """Run ``headrace watch`` for the duration of the context."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.main", "watch", str(root)),
        *("--project", PROJECT, "--json"),
        env={**os.environ, **stack.environment(), "HEADRACE_MODEL": HASHING_MODEL},
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
    )
    if process.stdout is None:
        raise ConfigurationError("the pipe to the watch is missing", "measure again")
    watch = _Watch()
    reading = asyncio.create_task(watch.read(process.stdout))
    try:
        yield watch
    finally:
        process.terminate()
        await process.wait()
        await reading


async def _settled(stack: Stack, watch: _Watch) -> None:
    """Wait until the worker has nothing to do."""
    query = """
        SELECT (SELECT count(*) FROM ledger) >= $1 AND NOT EXISTS (SELECT FROM pending_vectors)
    """
    async with stack.owner() as owner:

        async def is_settled() -> bool:
            return bool(await owner.fetchval(query, watch.published))

        await until(is_settled, "the worker has nothing to do", _PATIENCE, _ASK_EVERY_SECONDS)


async def _save(client: Client, path: Path, word: str) -> float:
    """Return the milliseconds from a save until the new text is found.

    The pause before it ends at any point of the watch's own rhythm.
    """
    await asyncio.sleep(random.uniform(0, _LONGEST_PAUSE_SECONDS))
    began = perf_counter()
    _write(path, f"A {word} was seen.")
    await _found(client, word)
    return (perf_counter() - began) * 1000


async def _burst(watch: _Watch, paths: Sequence[Path], texts: Iterator[str]) -> tuple[float, float]:
    """Save all files; returns the seconds until they are saved, and until they are published."""
    expected = watch.published + len(paths)
    began = perf_counter()
    await asyncio.to_thread(_append_all, paths, texts)
    written_s = perf_counter() - began
    await watch.wait_for(expected)
    return written_s, perf_counter() - began


async def _steady(client: Client, path: Path) -> float:
    """Return the seconds from the first of many saves until a text of them is found."""

    async def save() -> None:
        for number in count():
            _write(path, f"A plover was seen {number} times.")
            await asyncio.sleep(STEADY_EVERY_SECONDS)

    began = perf_counter()
    saving = asyncio.create_task(save())
    try:
        await _found(client, "plover")
        return perf_counter() - began
    finally:
        saving.cancel()


async def _found(client: Client, word: str) -> None:
    """Ask by keyword until the best result has the word."""

    async def is_found() -> bool:
        answer = await client.ask(PROJECT, word, mode="keyword", limit=1)
        return any(word in result.content for result in answer.results)

    await until(is_found, f"{word} is found", _PATIENCE, _ASK_EVERY_SECONDS)


def _write_all(paths: Sequence[Path], texts: Iterator[str]) -> None:
    """Save a note of a few sentences at each path."""
    for path in paths:
        _write(path, "\n".join(islice(texts, LINES)))


def _append_all(paths: Sequence[Path], texts: Iterator[str]) -> None:
    """Add a sentence to each file; to empty thousands of files first would take seconds."""
    for path in paths:
        with path.open("a") as file:
            file.write(f"{next(texts)}\n")


def _write(path: Path, text: str) -> None:
    path.write_text(f"# Note\n\n{text}\n")
