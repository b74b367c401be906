"""Fresh Postgres databases, cloned from a migrated one, and servers that begin with one.

To create the data directory of a server and to migrate it takes seconds of processor time. So the
first server of a run does it, and the others copy the result.
"""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import asyncpg

from runtime.embedded import EmbeddedPostgres
from runtime.embedded.postgres import _programs
from store.postgres.schema import upgrade
from tests.support.forking import shared_directory
from tests.support.waiting import eventually

__all__ = [
    "TEMPLATE",
    "Database",
    "copy_data",
    "create_database",
    "data_is_copied",
    "distinguish",
    "fresh_database",
    "new_database",
    "replica_of",
    "start_migrated",
    "sync_writes",
]

TEMPLATE = "template_headrace"
_numbers = count(1)


@dataclass(frozen=True)
class Database:
    """Migrated database of one test, with URLs of owner, worker and operator."""

    name: str
    owner_url: str
    worker_url: str
    operator_url: str

    async def as_owner(self, statement: str) -> Any:
        """Run a statement as the owner of the tables, without policies; return its first value."""
        connection = await asyncpg.connect(self.owner_url)
        try:
            await connection.execute("set row_security = off")
            return await connection.fetchval(statement)
        finally:
            await connection.close()


async def create_database(server: EmbeddedPostgres, name: str, template: str = "template1") -> None:
    """Create a database on an embedded server."""
    await _execute(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")


class _Initialized(EmbeddedPostgres):
    """Server that creates its data directory, also where others copy theirs."""

    _create_data_directory = EmbeddedPostgres._create_data_directory


@contextmanager
def data_is_copied(directory: Path | None = None) -> Iterator[None]:
    """Let this process's embedded servers begin with a copy of the run's data directory.

    Their database is migrated, and so is ``TEMPLATE``.

    ``directory``: shared directory of the run; None for that of this process.
    """

    async def copied(server: EmbeddedPostgres, *_: object) -> None:
        await copy_data(server._directory.parent, directory)

    with patch.object(EmbeddedPostgres, "_create_data_directory", copied):
        yield


async def copy_data(home: Path, directory: Path | None = None) -> None:
    """Lay out the data directory of a server in ``home`` whose databases are migrated.

    ``directory``: shared directory of the run; None for that of this process.
    """
    source = await _prepared(directory or shared_directory())
    target = home / "postgres" / "data"
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = target.with_name("draft-copy")
    shutil.rmtree(draft, ignore_errors=True)
    await asyncio.to_thread(subprocess.check_call, ["cp", "-a", str(source), str(draft)])
    draft.rename(target)


async def _prepared(directory: Path) -> Path:
    """Data directory of a stopped server, made by the first process of the run that needs it."""
    home, complete = directory / "servers", directory / "servers-complete"
    with (directory / "servers-lock").open("w") as lock:
        await asyncio.to_thread(fcntl.flock, lock, fcntl.LOCK_EX)
        if not complete.exists():
            shutil.rmtree(home, ignore_errors=True)
            await _prepare(_Initialized(home))
            complete.touch()
    return home / "postgres" / "data"


async def _prepare(server: EmbeddedPostgres) -> None:
    urls = await server.start()
    try:
        await upgrade(urls.owner)
        await create_database(server, TEMPLATE, "headrace")
        await distinguish(server, TEMPLATE)
    finally:
        await server.stop()


async def start_migrated(server: EmbeddedPostgres) -> None:
    """Start a server with the database that ``fresh_database`` clones.

    The server does not sync its writes: commits survive its own end, but not that of the machine,
    and a database is made and dropped in a fifth of the time.
    """
    await server.start()
    await sync_writes(server, on=False)


@asynccontextmanager
async def replica_of(server: EmbeddedPostgres, home: Path) -> AsyncIterator[EmbeddedPostgres]:
    """Streaming replica of a running server, in an empty directory.

    Its reads give way to changes of the primary at once.
    """
    data = home / "postgres" / "data"
    data.parent.mkdir(mode=0o700, parents=True)
    url = server.urls("postgres").owner
    copy = [str(_programs() / "pg_basebackup"), "-d", url, "-D", str(data), "-R"]
    await asyncio.to_thread(subprocess.check_call, [*copy, "-c", "fast", "--no-sync"])
    with (data / "postgresql.auto.conf").open("a") as settings:
        settings.write("max_standby_streaming_delay = 0\n")
    owner = ["chown", "-R", f"--reference={server._data}", str(data)]
    await asyncio.to_thread(subprocess.check_call, owner)
    replica = EmbeddedPostgres(home, shared_buffers_mb=16)
    await replica.start()
    try:
        yield replica
    finally:
        await replica.stop()


async def sync_writes(server: EmbeddedPostgres, *, on: bool) -> None:
    """Switch syncing of writes at each commit on, as in production, or off."""
    for setting in ("fsync", "full_page_writes"):
        await _execute(server, f"ALTER SYSTEM SET {setting} = {'on' if on else 'off'}")
    await _execute(server, "SELECT pg_reload_conf()")
    await eventually(lambda: _syncs_writes(server, on=on), f"fsync is {on}")


async def _syncs_writes(server: EmbeddedPostgres, *, on: bool) -> bool:
    connection = await asyncpg.connect(server.urls("postgres").owner)
    try:
        return bool(await connection.fetchval("SHOW fsync") == ("on" if on else "off"))
    finally:
        await connection.close()


async def distinguish(server: EmbeddedPostgres, name: str) -> None:
    """Separate the ids of generations from those of projects, so that mixed-up ids are noticed."""
    connection = await asyncpg.connect(server.urls(name).owner)
    try:
        await connection.execute("SELECT setval('generations_id_seq', 1000)")
    finally:
        await connection.close()


@asynccontextmanager
async def fresh_database(
    server: EmbeddedPostgres, template: str = TEMPLATE
) -> AsyncIterator[Database]:
    """Clone of a template, dropped at the end with all its connections.

    A clone of ``TEMPLATE`` gets its own deployment id, others keep that of their template.
    """
    database = await new_database(server, template)
    try:
        yield database
    finally:
        await _execute(server, f"DROP DATABASE {database.name} WITH (FORCE)")


async def new_database(server: EmbeddedPostgres, template: str = TEMPLATE) -> Database:
    """Clone of a template as ``fresh_database``, which stays."""
    name = f"test_{next(_numbers)}"
    await create_database(server, name, template)
    urls = server.urls(name)
    if template == TEMPLATE:
        await _renew(urls.owner)
    return Database(name, urls.owner, urls.worker, urls.operator)


async def _renew(owner_url: str) -> None:
    """Give the database its own deployment id."""
    connection = await asyncpg.connect(owner_url)
    try:
        await connection.execute(
            "UPDATE deployment SET id = replace(gen_random_uuid()::text, '-', '')"
        )
    finally:
        await connection.close()


async def _execute(server: EmbeddedPostgres, statement: str) -> None:
    connection = await asyncpg.connect(server.urls("postgres").owner)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
