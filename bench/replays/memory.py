"""Memory of replaying and examining many small documents, of one chunk each.

Two projects are replayed: one with a fourth of the documents, then one with all of them.
``small_mb`` and ``replay_mb`` are the peaks of the replays' own processes. ``bytes_per_document``
is their difference ÷ that of the documents: it says what more documents would take.
``parsers_mb`` is the peak of the replay's parser processes, ``peak_mb`` that of all its processes
together, and ``doctor_mb`` that of the process of `headrace doctor` afterwards. ``postgres_mb`` is
the peak of all processes of Postgres. A page that processes share counts once. ``cpu_s`` and
``postgres_cpu_s`` are the processor times of the replay and of Postgres beside it;
``documents_per_s`` is the rate from the first step to the switch. Vectors are made by hashing. No
HNSW index is built: Postgres would take most of the time for it, and the replay no memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from time import process_time, time
from typing import Any

from bench.figures import Report
from bench.processes import cpu_s_below, memory_mb, pids_of_children
from bench.stack import Stack, bench_stack
from events.models import DocumentChange, DocumentChanged
from events.names import Lane, LogPosition
from events.streams.changes import LoggedChange
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.wiring.operator_tools import OperatorTools, open_operator_tools
from runtime.errors import ConfigurationError

__all__ = ["measure"]

DOCUMENTS = 100_000
SMALL_SHARE = 4
DOCUMENTS_AT_ONCE = 10_000
PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
PAUSE_PER_CPU_S = 20
"""So the measurement itself takes little of a processor."""


@dataclass(slots=True)
class Peak:
    """Greatest memory that was seen, in MB, and the processor times at the end."""

    own_mb: float = 0.0
    below_mb: float = 0.0
    together_mb: float = 0.0
    postgres_mb: float = 0.0
    cpu_s: float = 0.0
    postgres_cpu_s: float = 0.0

    def sample(self, pid: int) -> None:
        """Look at a running command and at Postgres."""
        own_mb, below_mb = memory_mb([pid]), memory_mb(pids_of_children(pid))
        self.own_mb = max(self.own_mb, own_mb)
        self.below_mb = max(self.below_mb, below_mb)
        self.together_mb = max(self.together_mb, own_mb + below_mb)
        self.postgres_mb = max(
            self.postgres_mb, memory_mb(pids_of_children(os.getpid(), "postgres"))
        )
        self.cpu_s = max(self.cpu_s, sum(cpu_s_below(pid).values()))
        self.postgres_cpu_s = cpu_s_below(os.getpid()).get("postgres", 0.0)


async def measure(chunks: int = DOCUMENTS) -> Report:
    """Archive documents, replay them, and examine them."""
    async with bench_stack() as stack:
        settings = stack.settings().model_copy(update={"model": HASHING_MODEL})
        async with open_operator_tools(settings) as tools:
            await _archive(tools, "small", chunks // SMALL_SHARE)
            await _archive(tools, "large", chunks)
        exact = {"HEADRACE_VECTOR_SEARCH": json.dumps({"exact_chunks": chunks})}
        small, _ = await _run(stack, exact, "replay", "--project", "small")
        large, report = await _run(stack, exact, "replay", "--project", "large")
        examined, _ = await _run(stack, exact, "doctor", "--project", "large")
    more = chunks - chunks // SMALL_SHARE
    figures = {
        "replay_mb": large.own_mb,
        "small_mb": small.own_mb,
        "bytes_per_document": (large.own_mb - small.own_mb) * 1e6 / more,
        "parsers_mb": large.below_mb,
        "peak_mb": large.together_mb,
        "postgres_mb": large.postgres_mb,
        "doctor_mb": examined.own_mb,
        "cpu_s": large.cpu_s,
        "postgres_cpu_s": large.postgres_cpu_s - small.postgres_cpu_s,
        "documents_per_s": report["documents"] / sum(report["seconds"].values()),
    }
    return Report(
        "replay-memory",
        {name: round(value, 1) for name, value in figures.items()}
        | {f"{step}_s": round(seconds, 1) for step, seconds in report["seconds"].items()}
        | {"documents": report["documents"], "chunks": report["chunks"]},
    )


async def _archive(tools: OperatorTools, project: str, documents: int) -> None:
    """Archive the changes of a project whose index is empty."""
    await tools.store.generation(project)
    changes = _changes(project, documents)
    while part := list(islice(changes, DOCUMENTS_AT_ONCE)):
        await tools.archive.append(project, part)


def _changes(project: str, documents: int) -> Iterator[LoggedChange]:
    begin_ms = int(time() * 1000) - documents
    for number in range(documents):
        uri = f"notes/team-{number % 100}/a-note-about-a-meeting-{number}.md"
        text = f"# Note {number}\n\nA meeting about subject {number % 1009} and {number // 7}.\n"
        change = DocumentChange(project=project, uri=uri, content=text)
        position = LogPosition.of_entry(Lane.BULK, 0, f"{begin_ms + number}-0")
        yield LoggedChange(position, DocumentChanged(data=change))


async def _run(
    stack: Stack, environment: dict[str, str], *arguments: str
) -> tuple[Peak, dict[str, Any]]:
    """Run a command to its end; return its peak and the JSON that it prints.

    Raises:
        ConfigurationError: it failed, so its figures mean nothing; the message quotes it.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gateway.main", *arguments, "--json"),
        env={
            **os.environ,
            **stack.environment(),
            "HEADRACE_MODEL": HASHING_MODEL,
            **environment,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    peak = Peak()
    ended = asyncio.create_task(process.communicate())
    while not ended.done():
        begun = process_time()
        peak.sample(process.pid)
        rest = PAUSE_PER_CPU_S * (process_time() - begun)
        await asyncio.wait([ended], timeout=min(max(PAUSE_S, rest), LONGEST_PAUSE_S))
    stdout, stderr = await ended
    if process.returncode != 0:
        raise ConfigurationError(f"the command failed: {stderr.decode().strip()}")
    return peak, json.loads(stdout.splitlines()[-1])
