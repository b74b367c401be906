"""Revision of a database's schema, and the check that this code may use it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import asyncpg

from runtime.errors import ConfigurationError
from store.postgres.connection import connect, explained
from store.postgres.named_queries import named

__all__ = [
    "Schema",
    "check",
    "head_revision",
    "is_current",
    "read_schema",
    "refuse_flawed",
    "revisions",
]

_QUERIES = named("revision")


@dataclass(frozen=True, slots=True)
class Schema:
    """Migration state of a database. ``revision`` is None if it was never migrated.

    ``revision`` is the number of its newest migration. ``oldest_code`` identifies the oldest code
    that may use this schema, by the newest migration of that code. It is read only from databases
    that are newer than this code.
    """

    revision: str | None
    oldest_code: str | None = None

    @property
    def is_newer(self) -> bool:
        """True if a migration was applied that this code does not have."""
        return self.revision is not None and self.revision not in revisions()

    @property
    def flaw(self) -> tuple[str, str] | None:
        """Reason why this code may not use the schema, and the remedy. None if it may use it."""
        head = head_revision()
        if self.is_newer:
            if self.oldest_code is not None and self.oldest_code <= head:
                return None
            needed = self.oldest_code or self.revision
            detail = f"revision {self.revision}, which needs a version that knows {needed}"
            return f"{detail}, and this one ends at {head}", "upgrade headrace"
        if self.revision == head:
            return None
        detail = f"revision {self.revision or 'none'}, this version needs {head}"
        return detail, "run `headrace migrate`"


async def check(connection: asyncpg.Connection) -> None:
    """Make sure that the database has the schema of this code, or a newer one that it may use.

    Raises:
        ConfigurationError: the database has another schema; the message names the remedy.
    """
    refuse_flawed(await read_schema(connection))


async def is_current(url: str) -> bool:
    """Return whether a database has exactly the schema of this code.

    Raises:
        Unavailable: the server cannot be reached.
        ConfigurationError: the URL is invalid, or the server denies access.
    """
    connection = await connect(url)
    try:
        with explained():
            return (await read_schema(connection)).revision == head_revision()
    finally:
        await connection.close()


def refuse_flawed(schema: Schema) -> None:
    """Raise ConfigurationError if this code may not use the schema.

    Raises:
        ConfigurationError: the schema is not usable; the message names the remedy.
    """
    if schema.flaw is not None:
        detail, remedy = schema.flaw
        raise ConfigurationError(f"the database schema is at {detail}", remedy)


async def read_schema(connection: asyncpg.Connection, *, is_migrated: bool = False) -> Schema:
    """Read the migration state of the database; with ``is_migrated`` in one statement.

    Raises:
        asyncpg.PostgresError: the server failed, or the database was never migrated although
            ``is_migrated``.
    """
    if not (is_migrated or await connection.fetchval(_QUERIES["is_migrated"])):
        return Schema(None)
    schema = Schema(await connection.fetchval(_QUERIES["revision"]))
    if not schema.is_newer:
        return schema
    oldest_code = await connection.fetchval(_QUERIES["oldest_code"], schema.revision)
    return Schema(schema.revision, oldest_code)


@cache
def revisions() -> tuple[str, ...]:
    """Numbers of all migrations, ascending; each begins the name of its file."""
    names = (file.name for file in files("migrations").joinpath("versions").iterdir())
    return tuple(sorted(name.partition("_")[0] for name in names if name.endswith(".py")))


def head_revision() -> str:
    """Number of the newest migration."""
    return revisions()[-1]
