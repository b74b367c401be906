"""Processor time, memory and written bytes of a whole deployment, as `headrace up` starts it.

The source is a repository of about 1,000 Python files. Vectors come from hashing, so that the model
costs nothing. All processes count: worker with its parsers, Postgres, Redis, gateway, commands, and
the client of the questions.

``cold``: from the start of the sync until every chunk is found by keyword and vector, and the HNSW
index is built. ``hybrid``, ``vector``, ``keyword``: one question; ``p50_ms`` is its time. ``noop``:
a sync with nothing changed; ``ask``: a question; both as commands. ``edit_p50_ms``: from the
publish of an edited file until it is found. ``move``: a sync after a folder was moved into another
one; ``rename``: after it got another name, which is in the headers of the chunks of its files.
``idle``: share of a core while nothing happens. It comes before the edits, since the autovacuum of
Postgres may come up to a minute after them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import asyncpg

from bench.corpus import python_files, questions
from bench.figures import Report
from bench.processes import CpuClock, memory_mb_below
from bench.stack import free_port, until
from events.client.client import Client
from events.models import DocumentChange
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.errors import ConfigurationError

__all__ = ["IS_SETTLED", "measure"]

PROJECT = "cost"
FILES = 1_000
LARGEST_BYTES = 20_000
QUESTIONS = 200
COMMANDS = 10
EDITS = 20
IDLE_SECONDS = 30.0
_QUIET_SECONDS = 15.0
"""Longer than a change waits for maintenance."""

_QUIET_PERCENT = 5.0
_REPORTED_SECONDS = 11.0
"""Time after which an idle process of Postgres has reported the rows that it has written."""

_MOVED = "moved"
_RENAMED = "renamed"
_CHECK_EVERY_SECONDS = 0.25
_PATIENCE = timedelta(minutes=10)
_AUTHOR = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")

IS_SETTLED = """
    select
        (select count(*) from documents) >= $1
        and not exists (select from pending_vectors)
        and not exists (select from pg_stat_progress_create_index)
        and (
            (select count(*) from embeddings) <= 10000
            or coalesce((select sum(vectors) from vector_indexes), 0)
            >= .8 * (select count(*) from embeddings)
        )
"""
"""Query for the end of an import: $1 documents are indexed, and no index is being built."""

_WRITTEN = """
    select
        pg_current_wal_lsn() - '0/0' as wal_bytes,
        (select sum(n_tup_ins) from pg_stat_user_tables) as rows,
        (select count(*) from vector_cache) as vectors,
        (select count(*) from chunks) as chunks
"""


@dataclass
class _Deployment:
    """Running ``headrace up`` with its addresses and its processor time."""

    pid: int
    home: Path
    redis_url: str
    owner: asyncpg.Connection
    environment: Mapping[str, str]
    clock: CpuClock
    peak_mb: float = 0.0

    async def run(self, *arguments: str) -> None:
        """Run a command of Headrace.

        Raises:
            ConfigurationError: it failed; the message has its last line.
        """
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.main", *arguments),
            env=self.environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, errors = await process.communicate()
        if process.returncode:
            last = errors.decode().strip().rpartition("\n")[2]
            raise ConfigurationError(f"{arguments[0]} failed: {last}", "measure again")

    async def settled(self, documents: int) -> None:
        """Wait until that many documents are indexed and nothing is being built."""

        async def is_settled() -> bool:
            self.peak_mb = max(self.peak_mb, memory_mb_below(self.pid))
            return bool(await self.owner.fetchval(IS_SETTLED, documents))

        await until(
            is_settled, f"{documents:,} documents are indexed", _PATIENCE, _CHECK_EVERY_SECONDS
        )

    async def written(self) -> Counter[str]:
        """Bytes of WAL and rows so far, and the vectors and chunks that exist.

        It waits until every process of Postgres has reported its rows.
        """
        await asyncio.sleep(_REPORTED_SECONDS)
        row = await self.owner.fetchrow(_WRITTEN)
        return Counter({name: int(value) for name, value in row.items()})


async def measure() -> Report:
    """Index a repository, ask, sync and wait; about four minutes on two cores.

    Raises:
        ConfigurationError: a process could not be started, or did not finish in time.
    """
    figures: dict[str, float | str] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        root, home = Path(directory) / "source", Path(directory) / "home"
        home.mkdir(mode=0o700)
        files = _repository(root)
        async with _running(home) as deployment:
            figures |= await _cold(deployment, root, files)
            figures |= await _questions(deployment)
            figures |= await _commands(deployment, root)
            figures["idle_percent"] = await _idle(deployment)
            figures["edit_p50_ms"] = await _edits(deployment, files)
            figures |= await _after(_move, deployment, root, len(files))
            figures |= await _after(_rename, deployment, root, len(files))
    return Report("cost", figures)


def _repository(root: Path) -> Sequence[tuple[str, str]]:
    """Commit the files of the source, and return their paths and texts."""
    files = python_files(LARGEST_BYTES)[:FILES]
    for uri, text in files:
        path = root / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    _git(root, "init", "--quiet")
    _commit(root)
    return files


def _commit(root: Path) -> None:
    _git(root, "add", "--all")
    _git(root, *_AUTHOR, "commit", "--quiet", "--message", "State")


def _git(root: Path, *arguments: str) -> None:
    git = shutil.which("git")
    if git is None:
        raise ConfigurationError("git is missing", "install git")
    subprocess.run([git, "-C", str(root), *arguments], check=True)  # noqa: S603  # own arguments


@asynccontextmanager
async def _running(home: Path) -> AsyncIterator[_Deployment]:
    """Run ``headrace up`` with one worker for the duration of the context."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")},
        "HEADRACE_HOME": str(home),
        "HEADRACE_MODEL": HASHING_MODEL,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.main", "up", "--quiet"),
        *("--port", str(free_port())),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        announced = await _announced(home, process)
        owner = await asyncpg.connect(announced["owner_database_url"])
        try:
            clock, url = CpuClock(process.pid), announced["redis_url"]
            yield _Deployment(process.pid, home, url, owner, environment, clock)
        finally:
            await owner.close()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _announced(home: Path, process: asyncio.subprocess.Process) -> dict[str, Any]:
    """Wait until the deployment runs; return what it announces."""

    async def is_announced() -> bool:
        if process.returncode is not None:
            raise ConfigurationError("`headrace up` ended", "run it in a shell to see why")
        return (home / "up.json").exists()

    await until(is_announced, "`headrace up` is ready", _PATIENCE, _CHECK_EVERY_SECONDS)
    announced: dict[str, Any] = json.loads((home / "up.json").read_text())
    return announced


async def _cold(
    deployment: _Deployment, root: Path, files: Sequence[tuple[str, str]]
) -> dict[str, float]:
    source_bytes = sum(len(text.encode()) for _, text in files)
    before = await deployment.written()
    deployment.clock.start()
    await deployment.run("sync", str(root), "--project", PROJECT)
    await deployment.settled(len(files))
    seconds = deployment.clock.seconds()
    written = await deployment.written() - before
    return {
        "source_bytes": source_bytes,
        "chunks": written["chunks"],
        "cold_cpu_s": round(seconds["total"], 1),
        **{f"cold_{part}_cpu_s": round(seconds[part], 1) for part in ("worker", "postgres")},
        "cold_chunks_per_cpu_s": round(written["chunks"] / seconds["total"], 1),
        "cold_bytes_per_cpu_s": round(source_bytes / seconds["total"]),
        "cold_wal_per_byte": round(written["wal_bytes"] / source_bytes, 2),
        "cold_rows": written["rows"],
        "peak_memory_mb": round(deployment.peak_mb),
    }


async def _questions(deployment: _Deployment) -> dict[str, float]:
    texts = iter(questions(3 * (QUESTIONS + COMMANDS)))
    figures: dict[str, float] = {}
    async with Client.connect(deployment.redis_url) as client:
        for mode in ("hybrid", "vector", "keyword"):
            for _ in range(COMMANDS):
                await client.ask(PROJECT, next(texts), mode=mode)
            times: list[float] = []
            deployment.clock.start()
            for _ in range(QUESTIONS):
                began = perf_counter()
                await client.ask(PROJECT, next(texts), mode=mode)
                times.append((perf_counter() - began) * 1000)
            seconds = deployment.clock.seconds()
            total = seconds["total"] + seconds["client"]
            figures[f"{mode}_cpu_ms"] = _each_ms(total, QUESTIONS)
            for part in ("worker", "postgres", "redis", "client"):
                figures[f"{mode}_{part}_cpu_ms"] = _each_ms(seconds[part], QUESTIONS)
            figures[f"{mode}_p50_ms"] = round(statistics.median(times), 1)
    return figures


def _each_ms(seconds: float, count: int) -> float:
    return round(1000 * seconds / count, 1)


async def _commands(deployment: _Deployment, root: Path) -> dict[str, float]:
    """Processor seconds of the commands that users repeat."""
    figures: dict[str, float] = {}
    commands = {
        "noop": ("sync", str(root), "--project", PROJECT),
        "ask": ("ask", "how is a path joined", "--project", PROJECT),
    }
    for name, arguments in commands.items():
        await deployment.run(*arguments)
        deployment.clock.start()
        for _ in range(COMMANDS):
            await deployment.run(*arguments)
        figures[f"{name}_cpu_s"] = round(deployment.clock.seconds()["total"] / COMMANDS, 3)
    return figures


async def _edits(deployment: _Deployment, files: Sequence[tuple[str, str]]) -> float:
    """Median of milliseconds from the publish of an edit until a question finds it."""
    times: list[float] = []
    async with Client.connect(deployment.redis_url) as client:
        for number, (uri, text) in enumerate(files[:EDITS]):
            word = f"plover{number}"
            change = DocumentChange(
                project=PROJECT, uri=f"edited/{uri}", content=f"{text}\n# a {word}\n"
            )
            await client.wait([await client.publish(change)], timeout=_PATIENCE)
            began = perf_counter()
            edited = change.model_copy(update={"content": f"{change.content}# another {word}\n"})
            receipt = await client.publish(edited)
            await client.ask(PROJECT, word, mode="keyword", min_event=receipt.token, limit=1)
            times.append((perf_counter() - began) * 1000)
    return round(statistics.median(times), 1)


async def _after(
    change: Callable[[Path], int], deployment: _Deployment, root: Path, documents: int
) -> dict[str, float]:
    """Change the repository, and sync."""
    files = await asyncio.to_thread(change, root)
    await deployment.settled(documents)
    before = await deployment.written()
    deployment.clock.start()
    await deployment.run("sync", str(root), "--project", PROJECT, "--wait")
    await deployment.settled(documents)
    seconds = deployment.clock.seconds()
    written = await deployment.written() - before
    name = change.__name__.strip("_")
    return {
        f"{name}_files": files,
        f"{name}_cpu_s": round(seconds["total"], 2),
        f"{name}_embedded": written["vectors"],
        f"{name}_rows": written["rows"],
    }


def _move(root: Path) -> int:
    """Move the folder with the most files into a new one, and commit; return their number."""
    folder, files = _largest_folder(root)
    (root / _MOVED).mkdir()
    folder.rename(root / _MOVED / folder.name)
    _commit(root)
    return files


def _rename(root: Path) -> int:
    """Rename the folder with the most files, and commit; return their number."""
    folder, files = _largest_folder(root)
    folder.rename(folder.with_name(_RENAMED))
    _commit(root)
    return files


def _largest_folder(root: Path) -> tuple[Path, int]:
    folders = Counter(path.parent for path in root.rglob("*.py") if path.parent != root)
    [(folder, files)] = folders.most_common(1)
    return folder, files


async def _idle(deployment: _Deployment) -> float:
    """Percent of a core that the deployment takes after the maintenance of the syncs has ended."""

    async def is_quiet() -> bool:
        return await _percent(deployment, _QUIET_SECONDS) < _QUIET_PERCENT

    await until(is_quiet, "maintenance has ended", _PATIENCE, _CHECK_EVERY_SECONDS)
    return round(await _percent(deployment, IDLE_SECONDS), 2)


async def _percent(deployment: _Deployment, seconds: float) -> float:
    deployment.clock.start()
    await asyncio.sleep(seconds)
    return 100 * deployment.clock.seconds()["total"] / seconds
