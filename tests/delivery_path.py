"""Source files on the path of one change: ``python -m tests.delivery_path`` prints them.

``tests/integration/test_delivery_path.py`` limits their number.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

from asyncpg.pool import PoolConnectionHolder
from redis.asyncio import Redis

from events.models import DocumentChange, DocumentChanged
from events.names import GROUPS, Names, Topic
from events.server import connection
from runtime import intervals
from runtime.embedded import EmbeddedPostgres, EmbeddedRedis
from runtime.lifespan import OwnedTasks
from tests.support.databases import (
    Database,
    data_is_copied,
    fresh_database,
    start_migrated,
)
from tests.support.forking import shared_by_run
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually

__all__ = ["files_of_one_change"]

ROOT = Path(__file__).parents[1]
_PACKAGES = (
    "content",
    "events",
    "gateway",
    "headrace",
    "processors",
    "runtime",
    "sources",
    "store",
)
_in_background = ContextVar("in_background", default=False)


async def files_of_one_change(redis_url: str, database: Database) -> list[str]:
    """Source files that one small change passes, from its publication to its acknowledgement.

    A client publishes the change to real servers, and a worker with all roles in the same process
    indexes it. A file counts if any of its functions is entered, or a coroutine of it continued,
    between the call of ``client.publish`` and the moment at which Redis has the acknowledgement.
    The change is the second one of its project, and caches keep their values, so that nothing is
    loaded or created for it first.
    Imports, the process of the parser, benchmarks, migrations, the opening of connections and the
    tasks that a worker runs beside its agents (heartbeats, archiving and the like) don't count.
    """
    files: set[str] = set()
    caches_stay_filled = patch.object(intervals, "monotonic", lambda: 0.0)
    memory_is_read_once = patch.object(connection, "_HEADROOM_SECONDS", math.inf)
    with (
        caches_stay_filled,
        memory_is_read_once,
        _background_tasks_marked(),
        _new_connections_marked(),
        _Entered(files).everywhere() as entered,
    ):
        async with headrace(redis_url, database) as worker, Redis.from_url(redis_url) as observer:
            await worker.change("first.md", "# First\n\nIt creates the project.")
            await _acknowledged(observer)
            with entered.recording():
                await _publish(worker)
                await _acknowledged(observer)
    return sorted(files)


async def _publish(worker: Headrace) -> None:
    data = DocumentChange(project="docs", uri="second.md", content="# Second\n\nIt is measured.")
    await worker.client.publish(DocumentChanged(data=data))


async def _acknowledged(observer: Redis) -> None:
    """Wait until the group of changes has read and acknowledged every entry."""
    stream = Names().stream(Topic.CHANGED_LIVE)

    async def complete() -> bool:
        groups: Any = await observer.xinfo_groups(stream)
        [group] = [
            group for group in groups if group["name"].decode() == GROUPS[Topic.CHANGED_LIVE]
        ]
        information: Any = await observer.xinfo_stream(stream)
        is_read = group["last-delivered-id"] == information["last-generated-id"]
        return is_read and not group["pending"]

    await eventually(complete, "every change acknowledged")


class _Entered:
    """Profiler that adds the files of entered functions to ``files`` while it is recording."""

    def __init__(self, files: set[str]) -> None:
        self._files = files
        self._recording = False

    @contextmanager
    def everywhere(self) -> Iterator[_Entered]:
        """Profile this thread and all that it starts; threads of a pool outlive single calls."""
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        try:
            yield self
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record for the length of a block."""
        self._recording = True
        try:
            yield
        finally:
            self._recording = False

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if not self._recording or event != "call" or frame.f_code.co_name == "<module>":
            return
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(ROOT):
            return
        name = path.relative_to(ROOT)
        if name.parts[0] in _PACKAGES and not _in_background.get():
            self._files.add(str(name))


@contextmanager
def _background_tasks_marked() -> Iterator[None]:
    """Mark the tasks that a worker runs beside its agents, with all that they start."""
    start = OwnedTasks.start

    def marked(tasks: OwnedTasks, name: str, work: Coroutine[Any, Any, None]) -> None:
        token = _in_background.set(True)
        start(tasks, name, work)
        _in_background.reset(token)

    with patch.object(OwnedTasks, "start", marked):
        yield


@contextmanager
def _new_connections_marked() -> Iterator[None]:
    """Mark the opening of connections: whether a pool needs another one depends on the load."""
    connect = PoolConnectionHolder.connect

    async def marked(holder: PoolConnectionHolder) -> None:
        token = _in_background.set(True)
        try:
            await connect(holder)
        finally:
            _in_background.reset(token)

    with patch.object(PoolConnectionHolder, "connect", marked):
        yield


async def _files_on_own_servers() -> list[str]:
    with tempfile.TemporaryDirectory(prefix="hr-") as home:
        postgres, redis = EmbeddedPostgres(Path(home)), EmbeddedRedis(Path(home))
        with patch.dict(os.environ, HEADRACE_HOME=home), shared_by_run(), data_is_copied():
            await start_migrated(postgres)
            try:
                redis_url = await redis.start()
                async with fresh_database(postgres) as database:
                    return await files_of_one_change(redis_url, database)
            finally:
                await redis.stop()
                await postgres.stop()


if __name__ == "__main__":
    entered_files = asyncio.run(_files_on_own_servers())
    print(*entered_files, f"{len(entered_files)} files", sep="\n")  # noqa: T201
