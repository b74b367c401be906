"""Properties of the Postgres server, and permissions of the role."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import asyncpg
import fsspec
from fsspec.implementations.local import LocalFileSystem

from runtime.errors import Unavailable
from store.archive.files import Files
from store.postgres.named_queries import named
from store.postgres.revision import Schema, read_schema

__all__ = ["PostgresFacts", "inspect_server", "local_directory", "probe"]

_QUERIES = named("inspection")


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


_PROBE = b"headrace doctor"


def probe(url: str) -> None:
    """Write a small file, read it back and remove it. Blocks.

    Raises:
        ConfigurationError: the URL has no known file system, or its package is not installed.
        Unavailable: the storage fails; the message names the path.
    """
    files = Files(url)
    path = f".probe-{uuid4().hex}"
    files.write(path, _PROBE)
    try:
        if files.read(path) != _PROBE:
            raise Unavailable(
                f"{files.full(path)} was read back with other content", "check the storage"
            )
    finally:
        files.remove(path)


def local_directory(url: str) -> Path | None:
    """Directory of the archive on this host. Returns None if the archive is stored elsewhere."""
    try:
        file_system, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError):
        return None
    return Path(root) if isinstance(file_system, LocalFileSystem) else None
