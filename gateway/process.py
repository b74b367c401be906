"""The parts of a gateway process, opened from the settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from events.client.operator_client import OperatorClient
from gateway.auth.keys import Authenticator
from gateway.auth.rates import Rates
from gateway.auth.sessions import Sessions
from gateway.clients import names_of, open_gateway, open_redis
from gateway.http.services import Services
from gateway.knowledge import Knowledge
from gateway.operations.operations import Operations
from gateway.telemetry import DeploymentMetrics, declare_build
from runtime.errors import ConfigurationError, HeadraceError
from runtime.settings import Settings
from store.api_keys import ApiKeys
from store.batches import Batches
from store.generations.catalog import Projects
from store.listing import Listing
from store.postgres.pool import Database

__all__ = ["open_services"]

_ALIVE = timedelta(seconds=10)
_ANSWERER = "answerer"
_CHECK_SECONDS = 3


@asynccontextmanager
async def open_services(settings: Settings, *, operator: bool = False) -> AsyncIterator[Services]:
    """Open the parts of a gateway, with ``operator`` also those of an operator.

    Raises:
        ConfigurationError: no database is configured, so that no API key can be checked.
        Unavailable: Redis or Postgres can't be reached.
    """
    if not settings.database_url:
        raise ConfigurationError(
            "the gateway checks API keys in Postgres", "set HEADRACE_DATABASE_URL"
        )
    declare_build()
    async with (
        open_gateway(settings) as (client, database),
        open_redis(settings) as redis,
        _operations(settings, operator=operator) as operations,
    ):

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
            batches=Batches(database, Projects(database)),
            deployment=DeploymentMetrics(redis, names_of(settings), database),
            missing_servers=missing_servers,
            operations=operations,
        )


@asynccontextmanager
async def _operations(settings: Settings, *, operator: bool) -> AsyncIterator[Operations | None]:
    if not operator:
        yield None
        return
    async with Operations.open(settings) as operations:
        yield operations


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
