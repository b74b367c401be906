"""Properties of the Postgres server, and permissions of the role."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg

from store.named_queries import named
from store.revision import Schema, read_schema

__all__ = ["PostgresFacts", "inspect_server"]

_QUERIES = named("inspecting")


@dataclass(frozen=True, slots=True)
class PostgresFacts:
    """A server as one role sees it; sizes in bytes.

    ``version`` is as in ``server_version_num``. ``vector_version`` is None if pgvector is not
    installed. ``clock`` is the server's time (Unix seconds).
    """

    version: int
    vector_version: str | None
    schema: Schema
    role: str
    is_a_superuser: bool
    has_bypassrls: bool
    owns_tables: bool
    user_is_superuser: bool
    fsync: bool
    shared_buffers_bytes: int
    vector_index_bytes: int
    clock: float


async def inspect_server(connection: asyncpg.Connection) -> PostgresFacts:
    """Query the server's properties as the connection's role.

    Raises:
        asyncpg.PostgresError: the server failed.
    """
    row = await connection.fetchrow(_QUERIES["server"])
    return PostgresFacts(**row, schema=await read_schema(connection))
