"""Ends a process after its database was migrated to a schema that its code may not use."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

from runtime.errors import OperatorError, Unavailable
from runtime.lifespan import wait_for_tick
from store.postgres.pool import Database
from store.postgres.revision import Schema, read_schema, refuse_flawed

__all__ = ["SchemaWatch"]

_INTERVAL = timedelta(seconds=2)
"""Well below the number of attempts of an event times their delay, so that a new schema causes no
dead letters."""


class SchemaWatch:
    """Repeats the check of the schema that was made when the database was opened."""

    def __init__(self, database: Database, *, interval: timedelta = _INTERVAL) -> None:
        self._database = database
        self._interval = interval
        self._is_migrated = False

    async def run(self, stop: asyncio.Event) -> None:
        """Check until ``stop`` is set; checks are skipped while Postgres is down or denies access.

        Raises:
            ConfigurationError: a migration made the schema unusable for this code; the message
                names the remedy.
        """
        while not stop.is_set():
            schema = await self._read()
            if schema is not None:
                refuse_flawed(schema)
            await wait_for_tick(stop, self._interval)

    async def _read(self) -> Schema | None:
        with contextlib.suppress(Unavailable, OperatorError):
            async with self._database.connection() as connection:
                was_migrated, self._is_migrated = self._is_migrated, False
                schema = await read_schema(connection, is_migrated=was_migrated)
                self._is_migrated = schema.revision is not None
                return schema
        return None
