"""Faults of Postgres: killed in the middle of a batch, silent, or out of disk space."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import pytest

from runtime.embedded import EmbeddedPostgres
from runtime.errors import Unavailable
from tests.chaos.replays import Strike
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds, size
from tests.support.databases import Database, fresh_database
from tests.support.processes import tree
from tests.support.small_disk import fill, small_disk
from tests.support.waiting import eventually

SOME = size(15, thorough=30)
"""Number of changes that show progress."""
SILENCE_SECONDS = 10
DISK_MB = 320
ROOM_KB = 512
KILLS = 2
POINTS = ["indexing.prepared", "indexing.committed", "answering.found"]


@pytest.mark.parametrize("seed", seeds())
async def test_killed_in_mid_batch(
    chaos: Chaos, breakable_postgres: EmbeddedPostgres, seed: int
) -> None:
    """I1 to I5 hold after Postgres was killed at several points of a worker's pipelines."""
    async with (
        fresh_database(breakable_postgres) as database,
        chaos(seed, scenario="Postgres killed", database=database) as run,
    ):
        async with run.load.running():
            for number in range(KILLS):
                point = POINTS[(seed + number) % len(POINTS)]
                strike = Strike(point, 2 + seed % 5, victim=breakable_postgres.pid)
                await run.worker(strike=strike)
                await eventually(
                    lambda: not _is_up(breakable_postgres), f"killed at {point}", timeout=30
                )
                await breakable_postgres.stop()
                await breakable_postgres.start()
                await _more_noted(run)
        await run.answered()
        await run.verify()
        assert all(worker.is_running for worker in run.workers)


@pytest.mark.parametrize("seed", seeds())
async def test_silent_for_a_while(
    chaos: Chaos, breakable_postgres: EmbeddedPostgres, seed: int
) -> None:
    """I1 to I5 hold after Postgres was stopped (SIGSTOP) for longer than a lease."""
    async with (
        fresh_database(breakable_postgres) as database,
        chaos(seed, scenario="Postgres silent", database=database) as run,
    ):
        for _ in range(2):
            await run.worker()
        async with run.load.running():
            await _more_noted(run)
            with _stopped(breakable_postgres):
                await asyncio.sleep(SILENCE_SECONDS)  # the fault itself
            await _more_noted(run)
        await run.answered()
        await run.verify()


@pytest.mark.parametrize("seed", seeds())
async def test_a_full_disk(chaos: Chaos, tmp_path: Path, seed: int) -> None:
    """I1 to I5 hold after Postgres had no disk space, and the worker keeps running."""
    with small_disk(DISK_MB) as disk:
        server = EmbeddedPostgres(disk, shared_buffers_mb=32)
        urls = await server.start()
        try:
            database = Database("headrace", urls.owner, urls.worker, urls.operator)
            async with chaos(seed, scenario="full disk", database=database) as run:
                worker = await run.worker()
                async with run.load.running():
                    await _more_noted(run)
                    with fill(disk, ROOM_KB):
                        await eventually(
                            lambda: _complains(worker.log), "there is no room", timeout=60
                        )
                    if not _is_up(server):
                        await server.stop()
                        await server.start()
                    await _more_noted(run)
                await run.answered()
                await run.verify()
                assert worker.is_running
        finally:
            await server.stop()


@contextmanager
def _stopped(server: EmbeddedPostgres) -> Iterator[None]:
    """Stop the server and all its processes for the length of the block."""
    pids = tree(server.pid)
    try:
        _send(signal.SIGSTOP, pids)
        yield
    finally:
        _send(signal.SIGCONT, pids)


def _send(number: signal.Signals, pids: Collection[int]) -> None:
    """Send a signal to processes, of which some may have ended since they were listed."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_up(server: EmbeddedPostgres) -> bool:
    try:
        return server.pid > 0
    except Unavailable:
        return False


def _complains(log: Path) -> bool:
    return "no room left" in log.read_text(errors="replace")


async def _more_noted(run: Run) -> None:
    """Wait until workers have recorded more changes."""
    enough = await _noted(run) + SOME

    async def more() -> bool:
        return await _noted(run) >= enough

    await eventually(more, "workers note changes", timeout=40, every=0.25)


async def _noted(run: Run) -> int:
    owner = await asyncpg.connect(run.database.owner_url)
    try:
        return int(await owner.fetchval("SELECT count(*) FROM ledger"))
    finally:
        await owner.close()
