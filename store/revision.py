"""Which revision of the schema this code needs, and whether a database has it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import asyncpg

from runtime.errors import ConfigurationError

__all__ = ["ahead", "check", "head_revision", "revisions"]


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
    if found is None or found in revisions():
        raise ConfigurationError(
            f"the database schema is at revision {found or 'none'}, this version needs "
            f"{head_revision()}: run `headrace migrate`"
        )
    raise ahead(str(found))


@cache
def revisions() -> tuple[str, ...]:
    """Numbers of all migrations, ascending; each begins the name of its file."""
    names = (file.name for file in files("migrations").joinpath("versions").iterdir())
    return tuple(sorted(name.partition("_")[0] for name in names if name.endswith(".py")))


def head_revision() -> str:
    """Number of the newest migration."""
    return revisions()[-1]


def ahead(found: str) -> ConfigurationError:
    """The error for a database that a newer version has migrated."""
    return ConfigurationError(
        f"the database schema is at revision {found}, newer than this version's "
        f"{head_revision()}: upgrade headrace"
    )
