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
    "LockUse",
    "PostgresFacts",
    "ReplicaFacts",
    "inspect_replica",
    "inspect_server",
    "local_directory",
    "probe",
    "read_locks",
]

_QUERIES = named("inspection")
_CATCH_UP_S = 1.0
_OTHER_LOCKS = 40
"""Tables and indexes that a search locks beside those of the vectors."""

_FAST_PATH_LOCKS = 16
"""Locks that a session keeps to itself, outside of the table that all share."""

_SIZED_FAST_PATH = 180_000
"""From this version on, there are as many of them as ``max_locks_per_transaction``."""
_CATCH_UP_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class LockUse:
    """Locks of a search, and the room for them.

    ``per_transaction`` is the setting ``max_locks_per_transaction``; ``most_indexes`` the number of
    indexes of the partition of the vectors that has most.
    """

    version: int
    per_transaction: int
    most_indexes: int

    @property
    def of_a_search(self) -> int:
        """Number of tables and indexes that a search in this partition locks."""
        return _OTHER_LOCKS + self.most_indexes

    @property
    def room(self) -> int:
        """Number of locks that each connection can hold if all hold as many."""
        own = _FAST_PATH_LOCKS if self.version < _SIZED_FAST_PATH else self.per_transaction
        return own + self.per_transaction


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
    locks: LockUse


async def inspect_server(connection: asyncpg.Connection) -> PostgresFacts:
    """Query the server's properties as the connection's role.

    Raises:
        asyncpg.PostgresError: the server failed.
    """
    row = await connection.fetchrow(_QUERIES["server"])
    schema, locks = await read_schema(connection), await read_locks(connection)
    return PostgresFacts(**row, schema=schema, locks=locks)


async def read_locks(connection: asyncpg.Connection) -> LockUse:
    """Read the room for locks, and what a search needs of it.

    Raises:
        asyncpg.PostgresError: the server failed, or its schema is older than the partitions.
    """
    return LockUse(**await connection.fetchrow(_QUERIES["locks"]))


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
