"""Migrates a database to the schema that this code expects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.resources import files

import structlog
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from runtime.errors import Unavailable
from runtime.intervals import Backoff
from store.postgres.connection import WriteConflict, connect, explained
from store.postgres.locks import MIGRATION_LOCK
from store.postgres.revision import (
    check,
    head_revision,
    read_schema,
    refuse_flawed,
    revisions,
)

__all__ = ["check", "head_revision", "upgrade"]

log = structlog.get_logger(__name__)

_ONE_AT_A_TIME = text(f"select pg_advisory_xact_lock({MIGRATION_LOCK})")
_LOCK_TIMEOUT = text("set local lock_timeout = '1s'")
"""A migration that waits for a table blocks every session that needs the table after it."""
_TRIES = 40
_PAUSE = Backoff(timedelta(seconds=2), timedelta(seconds=2), jitter=1)


async def upgrade(owner_url: str) -> str:
    """Apply the migrations that the database lacks; return its new revision.

    They commit together or not at all, except that one that reads a large table (``alone``) commits
    by itself, after those before it. Several processes may call this at once: the later ones wait
    and find nothing to do. Code that is older than the database, but may use it, changes nothing.
    Other sessions are blocked for at most a second: then the migration rolls back and tries again.

    Raises:
        Unavailable: the server cannot be reached, or other sessions lock its tables continuously.
        ConfigurationError: the database is too new for this code, or the user may not change it.
    """
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: connect(owner_url), poolclass=NullPool
    )
    try:
        while (revision := await _retry(engine)) < head_revision():
            pass
        return revision
    finally:
        await engine.dispose()


async def _retry(engine: AsyncEngine) -> str:
    for _ in range(_TRIES):
        try:
            with explained(), _errors_of_the_driver():
                async with engine.begin() as connection:
                    await connection.execute(_ONE_AT_A_TIME)
                    await connection.execute(_LOCK_TIMEOUT)
                    return await _upgrade(connection)
        except WriteConflict as conflict:
            log.warning("migration.postponed", error=str(conflict))
            await asyncio.sleep(_PAUSE.delay(0).total_seconds())
    raise Unavailable(f"migration gave up after {_TRIES} attempts: tables are locked", "try again")


@contextmanager
def _errors_of_the_driver() -> Iterator[None]:
    """Raise the driver's error that SQLAlchemy has wrapped."""
    try:
        yield
    except DBAPIError as error:
        cause = None if error.orig is None else error.orig.__cause__
        raise cause or error from error


async def _upgrade(connection: AsyncConnection) -> str:
    raw = await connection.get_raw_connection()
    schema = await read_schema(raw.driver_connection)
    if schema.revision is not None and schema.is_newer:
        refuse_flawed(schema)
        return schema.revision
    return await connection.run_sync(_apply_migrations, schema.revision)


def _apply_migrations(connection: Connection, current: str | None) -> str:
    """Apply the next migrations that commit together; return the last one."""
    config = Config()
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    target = _last_together(ScriptDirectory.from_config(config), current or "")
    command.upgrade(config, target)
    return target


def _last_together(scripts: ScriptDirectory, current: str) -> str:
    """Last of the migrations after the current one that commit in one transaction."""
    left = [revision for revision in revisions() if revision > current]
    for position, revision in enumerate(left):
        if getattr(scripts.get_revision(revision).module, "alone", False):
            return left[max(position - 1, 0)]
    return head_revision()
