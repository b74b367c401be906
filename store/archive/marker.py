"""The file by which an archive's location says whose folder a folder is."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, ConfigDict, ValidationError

from runtime.errors import ConfigurationError
from store.archive.files import Files
from store.database import Database
from store.deployment import read_deployment, server_of
from store.revision import head_revision

__all__ = ["Marker", "claim_folder", "mark_folder"]


class Marker(BaseModel):
    """Whose folder it is. ``database``: the server's number and the database's name."""

    model_config = ConfigDict(frozen=True)

    deployment: str
    prefix: str
    database: str
    schema_revision: str = ""

    @property
    def path(self) -> str:
        """Of the file, relative to the archive's URL."""
        return f"{self.deployment}/deployment.json"


async def claim_folder(database: Database, storage: Files, prefix: str, *, writes: bool) -> None:
    """Make sure that the folder of this deployment is written by this database only.

    ``writes``: the first one leaves the marker.

    Raises:
        ConfigurationError: another copy of this database writes there, or one of another prefix.
        Unavailable: Postgres or the archive's storage cannot be reached.
    """
    own = await _marker(database, prefix)
    try:
        data = await asyncio.to_thread(storage.read, own.path)
        found = Marker.model_validate_json(data)
    except FileNotFoundError:
        if writes:
            await asyncio.to_thread(storage.write, own.path, own.model_dump_json().encode())
        return
    except ValidationError:
        raise ConfigurationError(
            f"{storage.full(own.path)} is no marker of a deployment: remove it, and it is "
            "written again"
        ) from None
    if (found.prefix, found.database) != (own.prefix, own.database):
        raise ConfigurationError(
            f"the archive {storage.full(own.deployment)} is of prefix {found.prefix} and database "
            f"{found.database}, this is prefix {own.prefix} and a copy in {own.database}: give the "
            "copy an id of its own (`headrace deployment --new`), or, if the original is gone, "
            "its place (`headrace deployment --adopt`)"
        )


async def mark_folder(database: Database, storage: Files, prefix: str) -> None:
    """Replace the marker; raises as ``claim_folder``, but for no ConfigurationError."""
    own = await _marker(database, prefix)
    await asyncio.to_thread(storage.write, own.path, own.model_dump_json().encode())


async def _marker(database: Database, prefix: str) -> Marker:
    deployment = await read_deployment(database)
    return Marker(
        deployment=deployment.id,
        prefix=prefix,
        database=await server_of(database),
        schema_revision=head_revision(),
    )
