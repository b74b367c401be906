"""Brings a database to the schema that this code expects."""

from __future__ import annotations

from importlib.resources import files

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from store.connecting import connect, explained
from store.revision import check, head_revision, read_schema, refuse_flawed

__all__ = ["check", "head_revision", "upgrade"]

_ONE_AT_A_TIME = text("select pg_advisory_xact_lock(7235171042)")


async def upgrade(owner_url: str) -> str:
    """Apply the migrations that the database lacks; returns the revision it is at then.

    All of them commit together or not at all. Several processes may do it at once: the later ones
    wait and find nothing to do. Nor does code that is older than the database, but may use it.

    Raises:
        Unavailable: the server can't be reached.
        ConfigurationError: the database is too new for this code, or the user may not change it.
    """
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: connect(owner_url), poolclass=NullPool
    )
    try:
        with explained():
            async with engine.begin() as connection:
                await connection.execute(_ONE_AT_A_TIME)
                return await _upgrade(connection)
    finally:
        await engine.dispose()


async def _upgrade(connection: AsyncConnection) -> str:
    raw = await connection.get_raw_connection()
    found = await read_schema(raw.driver_connection)
    if found.revision is not None and found.is_newer:
        refuse_flawed(found)
        return found.revision
    await connection.run_sync(_apply_migrations)
    return head_revision()


def _apply_migrations(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
