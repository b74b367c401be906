"""``headrace status``: workers, and a live view."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from events.names import Names
from gateway.status.warnings import SILENT_SECONDS
from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.running import headrace
from tests.support.shell import install_headrace
from tests.support.waiting import eventually, within


@pytest.fixture
def cli(redis_url: str, database: Database, tmp_path: Path) -> Cli:
    return Cli(environment_of(redis_url, database, tmp_path))


async def watching(cli: Cli, *arguments: str, **streams: Any) -> asyncio.subprocess.Process:
    """Start ``status --watch`` in a process with streams of its own."""
    directory = Path(cli.environment["HEADRACE_HOME"])
    await asyncio.to_thread(install_headrace, directory)
    return await asyncio.create_subprocess_exec(
        *(str(directory / "headrace"), "status", "--watch", "--interval", "0.2"),
        *arguments,
        env={**os.environ, "TERM": "xterm", **cli.environment},
        stdin=asyncio.subprocess.DEVNULL,
        **streams,
    )


async def test_status_shows_workers_and_what_is_wrong(
    cli: Cli, redis_url: str, database: Database
) -> None:
    """Status lists each worker with its roles, and warns of a worker that fell silent."""
    async with headrace(redis_url, database, model=HASHING_MODEL) as worker:
        await worker.change("a.md", "Text.")
        found = (await cli("status", "--json")).json
        [row] = found["workers"]
        assert row["roles"] == ["answerer", "archiver", "embedder", "indexer"]
        assert row["memory_bytes"] > 2**20
        assert not found["memory"]["refuses_changes"]
        assert found["warnings"] == []
    told = json.dumps({"at_ms": 0, "state": {"host": "gone", "pid": 1, "roles": ["indexer"]}})
    async with Redis.from_url(redis_url) as redis:
        await redis.hset(Names().workers, "gone:1:x", told)
    found = (await cli("status", "--json")).json
    assert found["workers"][0]["silent_s"] > SILENT_SECONDS
    assert "worker gone:1 has been silent" in found["warnings"][0]


async def test_watch_prints_a_line_each_time_until_it_is_interrupted(cli: Cli) -> None:
    """Without a terminal the watch prints lines; Ctrl-C ends it with exit code 0."""
    process = await watching(cli, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with within(60):
        lines = [await process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        _, errors = await process.communicate()
    assert all(b" lag 0; pending 0; " in line for line in lines)
    assert (process.returncode, errors) == (0, b"")


async def test_watch_as_json_is_an_object_a_line(cli: Cli) -> None:
    """``--watch --json`` prints an object per line with the state of streams and workers."""
    process = await watching(cli, "--json", stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    async with within(60):
        first, second = [json.loads(await process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert first["changes_per_s"] is None
    assert second["changes_per_s"] == 0
    assert {"streams", "workers", "models", "providers", "memory", "warnings"} <= first.keys()
    assert process.returncode == 0


async def test_watch_is_a_live_view_on_a_terminal(cli: Cli) -> None:
    """On a terminal the watch uses the alternate screen and restores the old one."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    process = await watching(cli, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = bytearray()

    def has_shown(part: bytes) -> bool:
        with contextlib.suppress(BlockingIOError, OSError):
            shown.extend(os.read(ours, 65536))
        return part in shown

    await eventually(lambda: has_shown(b"document.changed.live"), "the streams", timeout=60)
    assert b"\x1b[?1049h" in shown
    process.send_signal(signal.SIGINT)
    await eventually(lambda: has_shown(b"\x1b[?1049l"), "the screen is given back")
    async with within(30):
        assert await process.wait() == 0
    os.close(ours)


async def test_a_senseless_interval_is_refused(cli: Cli) -> None:
    """An interval of 0 is refused, because it would poll without a pause."""
    assert "--interval" in (await cli("status", "--watch", "--interval", "0")).line
