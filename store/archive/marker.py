"""Marker file that identifies the owner of a deployment's folder in an archive."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, ConfigDict, ValidationError

from runtime.errors import ConfigurationError
from store.archive.files import Files
from store.postgres.deployment import read_deployment, server_of
from store.postgres.pool import Database
from store.postgres.revision import head_revision

__all__ = ["Marker", "claim_folder", "mark_folder"]


class Marker(BaseModel):
    """Owner of a folder. ``database``: the server's number and the database's name."""

    model_config = ConfigDict(frozen=True)

    deployment: str
    prefix: str
    database: str
    schema_revision: str = ""

    @property
    def path(self) -> str:
        """Path of the file, relative to the archive's URL."""
        return f"{self.deployment}/deployment.json"


async def claim_folder(database: Database, storage: Files, prefix: str, *, writes: bool) -> None:
    """Make sure that only this database writes to the folder of this deployment.

    ``writes``: write the marker if it does not exist.

    Raises:
        ConfigurationError: a copy of this database, or one with another prefix, writes there.
        Unavailable: Postgres or the archive's storage cannot be reached.
    """
    expected = await _marker(database, prefix)
    try:
        data = await asyncio.to_thread(storage.read, expected.path)
        marker = Marker.model_validate_json(data)
    except FileNotFoundError:
        if writes:
            await asyncio.to_thread(
                storage.write, expected.path, expected.model_dump_json().encode()
            )
        return
    except ValidationError:
        raise ConfigurationError(
            f"{storage.full(expected.path)} is not a valid deployment marker",
            "remove it; the next start writes it again",
        ) from None
    if (marker.prefix, marker.database) != (expected.prefix, expected.database):
        raise ConfigurationError(
            f"the archive {storage.full(expected.deployment)} belongs to prefix {marker.prefix} "
            f"and database {marker.database}, but this is prefix {expected.prefix} and database "
            f"{expected.database}, a copy",
            "give the copy an id of its own (`headrace deployment --new`) or, if the original is "
            "gone, let it replace the original (`headrace deployment --adopt`)",
        )


async def mark_folder(database: Database, storage: Files, prefix: str) -> None:
    """Replace the marker.

    Raises:
        Unavailable: Postgres or the archive's storage cannot be reached.
    """
    expected = await _marker(database, prefix)
    await asyncio.to_thread(storage.write, expected.path, expected.model_dump_json().encode())


async def _marker(database: Database, prefix: str) -> Marker:
    deployment = await read_deployment(database)
    return Marker(
        deployment=deployment.id,
        prefix=prefix,
        database=await server_of(database),
        schema_revision=head_revision(),
    )
