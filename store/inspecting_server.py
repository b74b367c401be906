"""What Postgres is like as a server, and what the role may do in it."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg

from store.named_queries import named

__all__ = ["PostgresFacts", "inspect_server"]

_QUERIES = named("inspecting")


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """A server as one role sees it; sizes in bytes.

    ``version`` is as in ``server_version_num``. ``vector_version`` None: there is no pgvector;
    ``revision`` None: the database was never migrated. ``clock`` is the server's time (Unix
    seconds).
    """

    version: int
    vector_version: str | None
    revision: str | None
    role: str
    is_a_superuser: bool
    has_bypassrls: bool
    owns_tables: bool
    fsync: bool
    shared_buffers_bytes: int
    vector_index_bytes: int
    clock: float


async def inspect_server(connection: asyncpg.Connection) -> PostgresFacts:
    """Ask the server, as the connection's role.

    Raises:
        asyncpg.PostgresError: it failed.
    """
    row = await connection.fetchrow(_QUERIES["server"])
    revision = None
    if row["has_revision"]:
        revision = await connection.fetchval(_QUERIES["revision"])
    facts = {name: value for name, value in row.items() if name != "has_revision"}
    return PostgresFacts(**facts, revision=revision)
