"""Publishing of deletes for commands."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from events import Client
from processors.purging.deleting import publish_deletes, until_deleted
from runtime.errors import UsageError
from store.sources import RegisteredSource, Sources

__all__ = ["delete_documents", "find_source"]


async def delete_documents(
    client: Client, project: str, agent: str, uris: Sequence[str], patience: timedelta | None
) -> None:
    """Publish deletes, and wait for their outcomes unless ``patience`` is None.

    Raises:
        UsageError: a document changed in the meantime, or a delete was rejected.
        Unavailable: a server can't be reached, or no outcome arrived for as long as ``patience``.
    """
    receipts = await publish_deletes(client, project, agent, uris)
    if patience is None:
        return
    _, late = await until_deleted(client, list(receipts.values()), patience)
    if late:
        raise UsageError(
            f"{late} documents changed in the meantime and were not deleted; run the command again"
        )


async def find_source(sources: Sources, project: str, name: str) -> RegisteredSource:
    """Find a source by its name.

    Raises:
        UsageError: the project has no source of this name.
    """
    for source in await sources.list(project):
        if source.name == name:
            return source
    raise UsageError(
        f"{project} has no source {name!r}; `headrace source list -p {project}` lists its sources"
    )
