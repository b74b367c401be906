"""Fresh Postgres databases, cloned from a migrated one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import asyncpg

from runtime.embedded import EmbeddedPostgres
from store.postgres.schema import upgrade
from tests.support.waiting import eventually

__all__ = [
    "TEMPLATE",
    "Database",
    "create_database",
    "distinguish",
    "fresh_database",
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


async def create_database(server: EmbeddedPostgres, name: str, template: str = "template1") -> None:
    """Create a database on an embedded server."""
    await _execute(server, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")


async def start_migrated(server: EmbeddedPostgres) -> None:
    """Start a server with the database that ``fresh_database`` clones.

    The server does not sync its writes: commits survive its own end, but not that of the machine,
    and a database is made and dropped in a fifth of the time.
    """
    await server.start()
    await sync_writes(server, on=False)
    await create_database(server, TEMPLATE)
    await upgrade(server.urls(TEMPLATE).owner)
    await distinguish(server, TEMPLATE)


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
async def fresh_database(server: EmbeddedPostgres) -> AsyncIterator[Database]:
    """Clone of the template, dropped at the end with all its connections."""
    name = f"test_{next(_numbers)}"
    await create_database(server, name, TEMPLATE)
    urls = server.urls(name)
    await _renew(urls.owner)
    try:
        yield Database(name, urls.owner, urls.worker, urls.operator)
    finally:
        await _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


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
