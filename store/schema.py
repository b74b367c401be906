"""Brings a database to the schema that this code expects, and says when it isn't there."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from runtime.errors import ConfigurationError
from store.connecting import connect

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
        async with engine.begin() as connection:
            await connection.execute(_ONE_AT_A_TIME)
            await connection.run_sync(_upgrade)
    finally:
        await engine.dispose()
    return head_revision()


async def check(connection: asyncpg.Connection) -> None:
    """Make sure that the database has exactly the schema of this code.

    Raises:
        ConfigurationError: it is behind or ahead; the message names the cure.
    """
    try:
        found = await connection.fetchval("select version_num from alembic_version")
    except asyncpg.UndefinedTableError:
        found = None
    if found == head_revision():
        return
    if found is None or found in _revisions():
        raise ConfigurationError(
            f"the database schema is at revision {found or 'none'}, this version needs "
            f"{head_revision()}: run `headrace migrate`"
        )
    raise _ahead(str(found))


@cache
def head_revision() -> str:
    """Number of the newest migration."""
    head = _scripts().get_current_head()
    assert head is not None
    return head


@cache
def _revisions() -> frozenset[str]:
    return frozenset(script.revision for script in _scripts().walk_revisions())


def _configuration() -> Config:
    config = Config()
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_configuration())


def _upgrade(connection: Connection) -> None:
    config = _configuration()
    config.attributes["connection"] = connection
    found = _current(connection)
    if found is not None and found not in _revisions():
        raise _ahead(found)
    command.upgrade(config, "head")


def _current(connection: Connection) -> str | None:
    if connection.scalar(text("select to_regclass('alembic_version')")) is None:
        return None
    revision = connection.scalar(text("select version_num from alembic_version"))
    return None if revision is None else str(revision)


def _ahead(found: str) -> ConfigurationError:
    return ConfigurationError(
        f"the database schema is at revision {found}, newer than this version's "
        f"{head_revision()}: upgrade headrace"
    )
