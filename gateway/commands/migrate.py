"""``headrace migrate``: apply database migrations."""

from __future__ import annotations

import typer

from gateway.output import print_json
from gateway.servers import stack
from gateway.session import JsonOption, run_client
from runtime.errors import ConfigurationError
from runtime.settings import Settings
from store.postgres.schema import upgrade

__all__ = ["command"]


def command(json: JsonOption = False) -> None:
    """Apply database migrations up to the schema of this version, as the owner of the tables."""
    revision = run_client(_migrate)
    if json:
        print_json({"revision": revision})
    else:
        typer.echo(f"the database is at revision {revision}")


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
