"""Brings a database to the schema that this code expects."""

from __future__ import annotations

from importlib.resources import files

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from store.connecting import connect, explained
from store.revision import ahead, check, head_revision, revisions

__all__ = ["check", "head_revision", "upgrade"]

_ONE_AT_A_TIME = text("select pg_advisory_xact_lock(7235171042)")


async def upgrade(owner_url: str) -> str:
    """Apply the migrations that the database lacks; returns the revision it is at then.

    All of them commit together or not at all. Several processes may do it at once: the later ones
    wait and find nothing to do.

    Raises:
        Unavailable: the server can't be reached.
        ConfigurationError: the database is newer than this code, or the user may not change it.
    """
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: connect(owner_url), poolclass=NullPool
    )
    try:
        with explained():
            async with engine.begin() as connection:
                await connection.execute(_ONE_AT_A_TIME)
                await connection.run_sync(_upgrade)
    finally:
        await engine.dispose()
    return head_revision()


def _upgrade(connection: Connection) -> None:
    found = _current(connection)
    if found is not None and found not in revisions():
        raise ahead(found)
    config = Config()
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _current(connection: Connection) -> str | None:
    if connection.scalar(text("select to_regclass('alembic_version')")) is None:
        return None
    revision = connection.scalar(text("select version_num from alembic_version"))
    return None if revision is None else str(revision)
