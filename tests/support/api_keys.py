"""API keys in a fresh database, and gateways that check them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from events.names import Names
from gateway.auth.callers import Right
from gateway.auth.keys import Authenticator
from gateway.auth.rates import Rates
from store.generations.catalog import Projects
from store.keys.api_keys import ApiKey, ApiKeyRegister, ApiKeys, NewApiKey
from store.postgres.pool import Database as OpenDatabase
from tests.support.databases import Database
from tests.support.writes import RECIPE, opened

__all__ = ["NAMES", "add_key", "authenticator", "gateway_url", "opened_gateway", "register"]

NAMES = Names()


def gateway_url(database: Database) -> str:
    """URL of the database as the role of gateways."""
    return database.worker_url.replace("headrace_worker@", "headrace_gateway@")


@asynccontextmanager
async def opened_gateway(database: Database) -> AsyncIterator[OpenDatabase]:
    """Database as a gateway opens it."""
    async with opened(gateway_url(database)) as gateway:
        yield gateway


@asynccontextmanager
async def register(database: Database) -> AsyncIterator[ApiKeyRegister]:
    """Register of an operator."""
    async with opened(database.operator_url) as operator:
        yield ApiKeyRegister(operator, Projects(operator, RECIPE))


async def add_key(
    database: Database,
    project: str | None,
    rights: Collection[str] = (Right.ASK, Right.READ),
    **properties: Any,
) -> ApiKey:
    """Add a key of a project; None: of an operator."""
    key = ApiKey.new()
    async with register(database) as keys:
        await keys.add(key, NewApiKey(project, frozenset(rights), **properties))
    return key


def authenticator(gateway: OpenDatabase, redis: Redis) -> Authenticator:
    """Authenticator of one gateway, without anything remembered."""
    return Authenticator(ApiKeys(gateway), Rates(redis, NAMES))
