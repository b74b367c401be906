"""``headrace deployment`` and ``migrate``: the deployment and the schema of the servers."""

from __future__ import annotations

from typing import Annotated

import typer

from events.deployment import Stamp
from events.partitions import LARGEST_PARTITIONS, hash_tag
from gateway.clients import open_redis
from gateway.output import print_json
from gateway.servers import require_database, stack
from gateway.session import JsonOption, run_client
from processors.deployment import adopt, compare, raise_partitions
from runtime.errors import ConfigurationError, UsageError
from runtime.settings import Settings
from store.postgres.pool import Database
from store.postgres.roles import OPERATOR
from store.postgres.schema import upgrade

__all__ = ["command", "migrate"]


def command(
    adopt_settings: Annotated[
        bool,
        typer.Option(
            "--adopt", help="Make the servers and these settings one deployment, permanently."
        ),
    ] = False,
    new: Annotated[
        bool, typer.Option("--new", help="Like --adopt, with a new id: for a copy of a database.")
    ] = False,
    partitions: Annotated[
        int | None,
        typer.Option(
            help="Raise the number of partitions to this, while everything runs.",
            min=2,
            max=LARGEST_PARTITIONS,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print the deployment's id, stream prefix and number of partitions.

    Exits 1 if servers or settings differ. --adopt copies the id of the database to Redis, and the
    prefix and partitions of the settings to both: use it after a server was lost, or to change
    HEADRACE_STREAM_PREFIX or to lower HEADRACE_PARTITIONS. Stop workers and publishers first.
    --partitions needs neither: a worker completes the raise within seconds. With --json, ``tags``
    are the hash tags of the partitions of changes.
    """
    if partitions is not None and (adopt_settings or new):
        raise UsageError("--partitions does not go with --adopt or --new", "leave one of them out")
    stamp = run_client(
        lambda settings: _run(
            settings, adopts=adopt_settings or new, new=new, partitions=partitions
        )
    )
    if json:
        tags = [hash_tag("document", partition) for partition in range(stamp.partitions)]
        print_json({**stamp.model_dump(), "tags": tags})
        return
    for name, value in stamp.model_dump(exclude={"raises"}).items():
        typer.echo(f"{name.replace('_', ' '):>16}  {value}")


def migrate(json: JsonOption = False) -> None:
    """Apply database migrations up to the schema of this version, as the owner of the tables."""
    revision = run_client(_migrate)
    if json:
        print_json({"revision": revision})
    else:
        typer.echo(f"the database is at revision {revision}")


async def _run(settings: Settings, *, adopts: bool, new: bool, partitions: int | None) -> Stamp:
    async with (
        stack(settings, with_worker=False, keep_partitions=True) as running,
        open_redis(running) as redis,
    ):
        require_database(running)
        database = await Database.open(running.database_url, role=OPERATOR, max_size=2)
        try:
            if partitions is not None:
                chosen = running.model_copy(update={"partitions": partitions})
                return await raise_partitions(redis, database, chosen)
            if adopts:
                return await adopt(redis, database, running, renews=new)
            return await compare(redis, database, running)
        finally:
            await database.close()


async def _migrate(settings: Settings) -> str:
    if settings.owner_database_url:
        return await upgrade(settings.owner_database_url)
    if settings.database_url:
        raise ConfigurationError(
            "the role in HEADRACE_DATABASE_URL can't change tables",
            "set HEADRACE_OWNER_DATABASE_URL to the database as the owner of its tables",
        )
    async with stack(settings, with_worker=False) as running:
        return await upgrade(running.owner_database_url)
