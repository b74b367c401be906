"""Which revision of the schema a database has, and whether this code may use it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import asyncpg

from runtime.errors import ConfigurationError
from store.named_queries import named

__all__ = ["Schema", "check", "head_revision", "read_schema", "refuse_flawed", "revisions"]

_QUERIES = named("revision")


@dataclass(frozen=True, slots=True)
class Schema:
    """How far a database is migrated, by numbers of migrations; ``revision`` None: not at all.

    ``oldest_code``: the newest migration that the oldest code knows which may use this schema.
    Only databases that are newer than this code are asked for it.
    """

    revision: str | None
    oldest_code: str | None = None

    @property
    def is_newer(self) -> bool:
        """A migration was applied that this code doesn't know."""
        return self.revision is not None and self.revision not in revisions()

    @property
    def flaw(self) -> tuple[str, str] | None:
        """Why this code may not use it, and the cure; None: it may."""
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
        ConfigurationError: it hasn't; the message names the cure.
    """
    refuse_flawed(await read_schema(connection))


def refuse_flawed(schema: Schema) -> None:
    """Let only a schema pass that this code may use.

    Raises:
        ConfigurationError: it is another one; the message names the cure.
    """
    if schema.flaw is not None:
        raise ConfigurationError("the database schema is at {}: {}".format(*schema.flaw))


async def read_schema(connection: asyncpg.Connection) -> Schema:
    """How far the database is migrated.

    Raises:
        asyncpg.PostgresError: it failed.
    """
    if not await connection.fetchval(_QUERIES["is_migrated"]):
        return Schema(None)
    found = Schema(await connection.fetchval(_QUERIES["revision"]))
    if not found.is_newer:
        return found
    oldest_code = await connection.fetchval(_QUERIES["oldest_code"], found.revision)
    return Schema(found.revision, oldest_code)


@cache
def revisions() -> tuple[str, ...]:
    """Numbers of all migrations, ascending; each begins the name of its file."""
    names = (file.name for file in files("migrations").joinpath("versions").iterdir())
    return tuple(sorted(name.partition("_")[0] for name in names if name.endswith(".py")))


def head_revision() -> str:
    """Number of the newest migration."""
    return revisions()[-1]
