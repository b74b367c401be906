"""Ends a process whose database has been migrated to what its code may not use."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

from runtime.errors import OperatorError, Unavailable
from store.database import Database
from store.revision import Schema, read_schema, refuse_flawed

__all__ = ["SchemaWatch"]

_INTERVAL = timedelta(seconds=2)
"""Well below the attempts of an event times their delay: a schema must cost no dead letters."""


class SchemaWatch:
    """Looks again and again at what was checked when the database was opened."""

    def __init__(self, database: Database, *, interval: timedelta = _INTERVAL) -> None:
        self._database = database
        self._interval = interval

    async def run(self, stop: asyncio.Event) -> None:
        """Look until ``stop`` is set; while Postgres is away or refuses us, nothing is seen.

        Raises:
            ConfigurationError: a migration has shut this code out; the message names the cure.
        """
        while not stop.is_set():
            schema = await self._look()
            if schema is not None:
                refuse_flawed(schema)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._interval.total_seconds())

    async def _look(self) -> Schema | None:
        with contextlib.suppress(Unavailable, OperatorError):
            async with self._database.connection() as connection:
                return await read_schema(connection)
        return None
