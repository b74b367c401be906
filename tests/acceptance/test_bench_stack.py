"""Processes of a measurement: all end with it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.child_process import is_alive
from tests.support.forking import fork_server
from tests.support.processes import tree
from tests.support.waiting import eventually

MEASUREMENT = """
import asyncio
from pathlib import Path
from bench.stack import bench_stack
from tests.support.databases import data_is_copied
from tests.support.forked_services import services_are_forked

async def main():
    async with bench_stack() as stack, stack.worker("--only", "indexer"):
        print("up", flush=True)
        await asyncio.Event().wait()

server = Path({server!r})
with services_are_forked(server), data_is_copied(server.parent):
    asyncio.run(main())
"""


async def test_a_killed_measurement_takes_its_worker_along() -> None:
    """A killed measurement ends its servers and worker; the worker alone would retry for ever."""
    with TemporaryDirectory(prefix="hr-") as directory:  # it can't remove its files
        await _end_of_killed(directory)


async def _end_of_killed(directory: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", MEASUREMENT.format(server=str(fork_server()))),
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "HEADRACE_MODEL": HASHING_MODEL,
            "TMPDIR": directory,
        },
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"up\n"
    pids = tree(process.pid)
    process.kill()
    await process.wait()
    assert len(pids) >= 4, "the measurement, Redis, Postgres, a worker"
    await eventually(lambda: not any(map(is_alive, pids)), "the whole tree is gone", timeout=40)
