"""The deployment that a database belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = [
    "Deployment",
    "adopt_deployment",
    "claim_deployment",
    "read_deployment",
    "server_of",
]

_QUERIES = named("deployment")


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment as recorded in its database.

    ``id``: 32 hex digits. ``prefix`` and ``partitions`` are those of its streams; they are None
    until the first worker has started.
    """

    id: str
    prefix: str | None = None
    partitions: int | None = None


async def read_deployment(database: Database) -> Deployment:
    """The deployment of a database.

    Raises:
        Unavailable: Postgres cannot be reached.
        ConfigurationError: the schema is not the one expected.
    """
    async with database.connection() as connection:
        row = await connection.fetchrow(_QUERIES["read"])
    return Deployment(**row)


async def claim_deployment(database: Database, prefix: str, partitions: int) -> None:
    """Record prefix and partitions unless they are recorded; raises as ``read_deployment``."""
    async with database.connection() as connection:
        await connection.execute(_QUERIES["claim"], prefix, partitions)


async def adopt_deployment(
    database: Database, prefix: str, partitions: int, *, renews: bool = False
) -> None:
    """Replace prefix and partitions, and with ``renews`` the id, as an operator.

    Raises:
        Unavailable: Postgres cannot be reached.
        ConfigurationError: the role lacks the permission, or the schema is not the expected one.
    """
    async with database.connection() as connection:
        await connection.execute(_QUERIES["renew" if renews else "adopt"], prefix, partitions)


async def server_of(database: Database) -> str:
    """Number of the server and name of the database; '' if the role may not read the number."""
    async with database.connection() as connection:
        if not await connection.fetchval(_QUERIES["may_read_server"]):
            return ""
        return str(await connection.fetchval(_QUERIES["server"]))
