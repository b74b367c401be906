"""Fresh Postgres databases, cloned from a migrated one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import asyncpg

from runtime.embedded import EmbeddedPostgres

__all__ = ["TEMPLATE", "Database", "create_database", "fresh_database", "tell_apart"]

TEMPLATE = "template_headrace"
_numbers = count(1)


@dataclass(frozen=True)
class Database:
    """A migrated database of one test: as owner of the tables, as a worker, as an operator."""

    name: str
    owner_url: str
    worker_url: str
    operator_url: str


async def create_database(server: EmbeddedPostgres, name: str, template: str = "template1") -> None:
    """Create a database on an embedded server."""
    await _execute(server, f"CREATE DATABASE {name} TEMPLATE {template}")


async def tell_apart(server: EmbeddedPostgres, name: str) -> None:
    """Let no generation have the id of a project, so that a mix-up is found out."""
    connection = await asyncpg.connect(server.urls(name).owner)
    try:
        await connection.execute("SELECT setval('generations_id_seq', 1000)")
    finally:
        await connection.close()


@asynccontextmanager
async def fresh_database(server: EmbeddedPostgres) -> AsyncIterator[Database]:
    """A clone of the template, dropped at the end with whatever is still connected."""
    name = f"test_{next(_numbers)}"
    await create_database(server, name, TEMPLATE)
    urls = server.urls(name)
    try:
        yield Database(name, urls.owner, urls.worker, urls.operator)
    finally:
        await _execute(server, f"DROP DATABASE {name} WITH (FORCE)")


async def _execute(server: EmbeddedPostgres, statement: str) -> None:
    connection = await asyncpg.connect(server.urls("postgres").owner)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
