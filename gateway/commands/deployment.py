"""``headrace deployment``: show or set the deployment that Redis and Postgres belong to."""

from __future__ import annotations

from typing import Annotated

import typer

from events.deployment import Stamp
from gateway.clients import open_redis
from gateway.output import print_json
from gateway.servers import require_database, stack
from gateway.session import JsonOption, run_client
from processors.deployment import adopt, compare
from runtime.settings import Settings
from store.postgres.pool import Database
from store.postgres.roles import OPERATOR

__all__ = ["command"]


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
    json: JsonOption = False,
) -> None:
    """Print the deployment's id, stream prefix and number of partitions.

    Exits 1 if servers or settings differ. --adopt copies the id of the database to Redis, and the
    prefix and partitions of the settings to both: use it after a server was lost, or to change
    HEADRACE_PARTITIONS or HEADRACE_STREAM_PREFIX. Stop workers and publishers first.
    """
    stamp = run_client(lambda settings: _run(settings, adopts=adopt_settings or new, new=new))
    if json:
        print_json(stamp.model_dump())
        return
    for name, value in stamp.model_dump().items():
        typer.echo(f"{name.replace('_', ' '):>16}  {value}")


async def _run(settings: Settings, *, adopts: bool, new: bool) -> Stamp:
    async with (
        stack(settings, with_worker=False, keep_partitions=True) as running,
        open_redis(running) as redis,
    ):
        require_database(running)
        database = await Database.open(running.database_url, role=OPERATOR, max_size=2)
        try:
            if adopts:
                return await adopt(redis, database, running, renews=new)
            return await compare(redis, database, running)
        finally:
            await database.close()
