"""Rewriting Postgres' files, so that they hold no byte of a row that is deleted.

Postgres leaves the bytes of deleted rows in the pages of their tables, even after VACUUM; samples
of columns in its statistics; and rows as they were written in its log.
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
from store.connecting import connect, explained
from store.named_queries import named

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
    "contents",
    "outbox",
    "ledger",
    "archive_contents",
)
"""Those with texts, or with what is made of texts."""

_QUERIES = named("rewriting")
_LOOK_EVERY_S = 0.5


class Rewriter:
    """Works as the owner of the tables, on a connection of its own without time limits."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def open(cls, owner_url: str) -> AsyncIterator[Rewriter]:
        """Connect, and make sure that the tables can be rewritten.

        Raises:
            ConfigurationError: there is no URL of the owner, or it isn't theirs.
            Unavailable: the server can't be reached.
        """
        if not owner_url:
            raise ConfigurationError(
                "purging rewrites tables, which only their owner may: set "
                "HEADRACE_OWNER_DATABASE_URL"
            )
        connection = await connect(owner_url)
        try:
            with explained():
                foreign = await connection.fetch(_QUERIES["foreign_tables"], TABLES)
            if foreign:
                raise ConfigurationError(
                    f"purging rewrites tables, but the user of HEADRACE_OWNER_DATABASE_URL doesn't "
                    f"own {foreign[0]['relname']}: name their owner there"
                )
            yield cls(connection)
        finally:
            await connection.close()

    async def rewrite(self, patience: timedelta) -> list[str]:
        """Rewrite tables and statistics; tables that still hold deleted rows then.

        Such rows are kept for transactions that began before they were deleted. Each table is
        locked while it is rewritten: questions and writers wait.

        Raises:
            Unavailable: the server can't be reached or has no room.
        """
        deadline = monotonic() + patience.total_seconds()
        left = list(TABLES)
        with explained():
            while left and monotonic() < deadline:
                left = [table for table in left if await self._vacuum(table)]
                if left:
                    await asyncio.sleep(_LOOK_EVERY_S)
            with suppress(asyncpg.InsufficientPrivilegeError):  # nor may it rewrite them then
                await self._connection.execute(_QUERIES["forget_statistics"], TABLES)
            for table in TABLES:
                await self._connection.execute(f"analyze {table}", timeout=None)
            return left + (["pg_statistic"] if await self._vacuum("pg_statistic") else [])

    async def renew_log(self) -> str | None:
        """Overwrite or remove all files of the write-ahead log; why it can't be done, or None.

        A checkpoint renames files that aren't needed any more, to be written again later, so each
        of them is gone through once.

        Raises:
            Unavailable: the server can't be reached.
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
                    f"the owner may not renew the write-ahead log ({error}): as a superuser, run "
                    "CHECKPOINT, then pg_switch_wal() once for each file in pg_wal, then CHECKPOINT"
                )
        if keepers["slots"]:
            return "replication slots keep write-ahead log until their readers have it"
        return "archived write-ahead log is out of reach" if keepers["archives"] else None

    async def _checkpoint(self) -> None:
        await self._connection.execute(_QUERIES["next_wal_file"], timeout=None)
        await self._connection.execute("checkpoint", timeout=None)

    async def _vacuum(self, table: str) -> bool:
        """Rewrite a table; whether deleted rows are left, or it was not ours to rewrite."""
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
    """Rows that could not be removed yet, by what the server says; None: it says nothing."""
    for line in details:
        found = re.search(r"(\d+) dead row versions cannot be removed yet", line)
        if found is not None:
            return int(found[1])
    return None
