"""Rewrites the files of Postgres, so that they hold no byte of a deleted row.

Postgres keeps the bytes of deleted rows in the pages of their tables, even after VACUUM; samples of
columns in its statistics; and written rows in its write-ahead log.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from time import monotonic
from typing import Any

import asyncpg

from runtime.errors import ConfigurationError
from store.postgres.connection import connect, explained
from store.postgres.named_queries import named

__all__ = ["TABLES", "Rewriter"]

TABLES = (
    "documents",
    "chunks",
    "embeddings",
    "pending_vectors",
    "refused_vectors",
    "keyword_segments",
    "keyword_postings",
    "keyword_words",
    "keyword_vocabulary",
    "vector_cache",
    "chunk_contexts",
    "contexts",
    "contents",
    "outbox",
    "ledger",
    "judgements",
    "archive_contents",
)
"""Tables with texts, or with data derived from texts."""

_QUERIES = named("purge")
_POLL_SECONDS = 0.5


class Rewriter:
    """Works as the owner of the tables, on a connection of its own without timeouts."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, owner_url: str) -> AsyncIterator[Rewriter]:
        """Connect, and make sure that the tables can be rewritten.

        Raises:
            ConfigurationError: the owner's URL is missing, or names a user that is not the owner.
            Unavailable: the server cannot be reached.
        """
        if not owner_url:
            raise ConfigurationError(
                "purging requires the owner of the tables", "set HEADRACE_OWNER_DATABASE_URL"
            )
        connection = await connect(owner_url)
        try:
            with explained():
                foreign = await connection.fetch(_QUERIES["foreign_tables"], TABLES)
            if foreign:
                raise ConfigurationError(
                    "purging rewrites tables, but the user in HEADRACE_OWNER_DATABASE_URL does not "
                    f"own {foreign[0]['relname']}",
                    "set it to the URL of the owner",
                )
            yield cls(connection)
        finally:
            await connection.close()

    async def rewrite(self, patience: timedelta) -> list[str]:
        """Rewrite tables and statistics; return the tables that still hold deleted rows.

        Such rows are kept for transactions that began before the deletion; tables with them are
        rewritten again for ``patience``. Each table is locked while it is rewritten: queries and
        writers wait.

        Raises:
            Unavailable: the server cannot be reached or is out of disk space.
        """
        deadline = monotonic() + patience.total_seconds()
        left = list(TABLES)
        with explained():
            while left and monotonic() < deadline:
                left = [table for table in left if await self._vacuum(table)]
                if left:
                    await asyncio.sleep(_POLL_SECONDS)
            with suppress(asyncpg.InsufficientPrivilegeError):  # pg_statistic is reported below
                await self._connection.execute(_QUERIES["forget_statistics"], TABLES)
            for table in TABLES:
                await self._connection.execute(f"analyze {table}", timeout=None)
            return left + (["pg_statistic"] if await self._vacuum("pg_statistic") else [])

    async def renew_log(self) -> str | None:
        """Overwrite or remove all files of the write-ahead log.

        Returns the reason if old log remains, or None. A checkpoint recycles files that are no
        longer needed by renaming them, so this switches through all of them once.

        Raises:
            Unavailable: the server cannot be reached.
        """
        with explained():
            try:
                await self._checkpoint()
                for _ in range(await self._connection.fetchval(_QUERIES["wal_files"])):
                    await self._connection.execute(_QUERIES["next_wal_file"], timeout=None)
                await self._checkpoint()
                keepers = await self._connection.fetchrow(_QUERIES["wal_keepers"])
            except asyncpg.InsufficientPrivilegeError as error:
                return (
                    f"the owner may not overwrite the write-ahead log ({error}): as a superuser, "
                    "run CHECKPOINT, then pg_switch_wal() once for each file in pg_wal, then "
                    "CHECKPOINT"
                )
        if keepers["slots"]:
            return "replication slots keep write-ahead log until their consumers have read it"
        return "archived write-ahead log cannot be purged" if keepers["archives"] else None

    async def _checkpoint(self) -> None:
        await self._connection.execute(_QUERIES["next_wal_file"], timeout=None)
        await self._connection.execute("checkpoint", timeout=None)

    async def _vacuum(self, table: str) -> bool:
        """Rewrite a table; true if deleted rows are left, or if the role may not rewrite it."""
        details: list[str] = []

        def listen(_: Any, message: Any) -> None:
            details.append(f"{message.message} {getattr(message, 'detail', '')}")

        self._connection.add_log_listener(listen)
        try:
            await self._connection.execute(f"vacuum (full, verbose) {table}", timeout=None)
        finally:
            self._connection.remove_log_listener(listen)
        return _dead_rows(details) != 0


def _dead_rows(details: Sequence[str]) -> int | None:
    """Number of rows that could not be removed yet, over all partitions of a table.

    Returns None if the server reports none.
    """
    matches = (
        re.search(r"(\d+) dead row versions cannot be removed yet", line) for line in details
    )
    numbers = [int(match[1]) for match in matches if match is not None]
    return sum(numbers) if numbers else None
