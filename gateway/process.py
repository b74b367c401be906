"""The parts of a gateway process, opened from the settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from store.api_keys import ApiKeys
from store.listing import Listing

from events.client.operator_client import OperatorClient
from gateway.auth.keys import Authenticator
from gateway.auth.rates import Rates
from gateway.auth.sessions import Sessions
from gateway.clients import names_of, open_gateway, open_redis
from gateway.http.services import Services
from gateway.knowledge import Knowledge
from runtime.errors import ConfigurationError, HeadraceError
from runtime.settings import Settings
from store.postgres.pool import Database

__all__ = ["open_services"]

_ALIVE = timedelta(seconds=10)
_ANSWERER = "answerer"
_CHECK_SECONDS = 3


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Open the parts of a gateway.

    Raises:
        ConfigurationError: no database is configured, so that no API key can be checked.
        Unavailable: Redis or Postgres can't be reached.
    """
    if not settings.database_url:
        raise ConfigurationError(
            "the gateway checks API keys in Postgres", "set HEADRACE_DATABASE_URL"
        )
    async with open_gateway(settings) as (client, database), open_redis(settings) as redis:

        async def missing_servers() -> list[str]:
            return await _missing_servers(client, database)

        rates = Rates(redis, names_of(settings))
        authenticator = Authenticator(ApiKeys(database), rates)
        yield Services(
            settings=settings,
            knowledge=Knowledge(client, Listing(database), settings.gateway),
            authenticator=authenticator,
            sessions=Sessions(redis, names_of(settings), authenticator),
            rates=rates,
            missing_servers=missing_servers,
        )


async def _missing_servers(client: OperatorClient, database: Database) -> list[str]:
    missing = []
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            heartbeats = await client.heartbeats()
        if not any(
            beat.age < _ALIVE and _ANSWERER in beat.state.get("roles", ()) for beat in heartbeats
        ):
            missing.append("worker")
    except (HeadraceError, TimeoutError):
        missing.append("redis")
    try:
        async with asyncio.timeout(_CHECK_SECONDS), database.connection() as connection:
            await connection.execute("select")
    except (HeadraceError, TimeoutError):
        missing.append("postgres")
    return missing
