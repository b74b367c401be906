"""Properties of the Postgres server, and permissions of the role."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from uuid import uuid4

import asyncpg
import fsspec
from fsspec.implementations.local import LocalFileSystem

from runtime.errors import Unavailable
from store.archive.files import Files
from store.postgres.connection import connect_once, explained
from store.postgres.named_queries import named
from store.postgres.revision import Schema, read_schema

__all__ = [
    "PostgresFacts",
    "ReplicaFacts",
    "inspect_replica",
    "inspect_server",
    "local_directory",
    "probe",
]

_QUERIES = named("inspection")
_CATCH_UP_S = 1.0
_CATCH_UP_POLL_S = 0.2


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


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """State of a replica. ``is_replica`` is false for a server that takes writes.

    ``has_notes`` is false if no indexer has noted the watermark in the primary.
    ``behind_bytes`` of the primary's write-ahead log are missing although the replica had a second
    for them. ``age_s`` is the age of its last transaction; None if it has applied none.
    """

    is_replica: bool
    is_paused: bool
    behind_bytes: int
    age_s: float | None
    has_notes: bool


async def inspect_replica(primary_url: str, replica_url: str) -> ReplicaFacts:
    """Compare a replica with its primary; takes up to a second if it is behind.

    Raises:
        Unavailable: a server cannot be reached.
        ConfigurationError: a URL is invalid, or a server denies access.
    """
    primary = await _fetch(primary_url, "written_up_to")
    deadline = monotonic() + _CATCH_UP_S
    facts = await _compare(primary, replica_url)
    while facts.behind_bytes and not facts.is_paused and monotonic() < deadline:
        await asyncio.sleep(_CATCH_UP_POLL_S)
        facts = await _compare(primary, replica_url)
    return facts


async def _compare(primary: asyncpg.Record, replica_url: str) -> ReplicaFacts:
    replica = await _fetch(replica_url, "replica", primary["position"])
    return ReplicaFacts(**replica, has_notes=primary["has_notes"])


async def _fetch(url: str, query: str, *arguments: str) -> asyncpg.Record:
    connection = await connect_once(url)
    try:
        with explained():
            return await connection.fetchrow(_QUERIES[query], *arguments)
    finally:
        await connection.close()


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
