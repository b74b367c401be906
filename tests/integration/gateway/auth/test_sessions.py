"""Sessions of the pages, with real servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from gateway.auth.sessions import SESSION_LIFETIME, TICKET_LIFETIME, Sessions
from runtime.errors import Forbidden, Unauthenticated
from store.keys.api_keys import ApiKey
from store.postgres.pool import Database as OpenDatabase
from tests.support.api_keys import NAMES, add_key, authenticator, opened_gateway, register
from tests.support.databases import Database
from tests.support.waiting import eventually

SHORT = timedelta(milliseconds=1)


@pytest.fixture
async def gateway(database: Database) -> AsyncIterator[OpenDatabase]:
    """The database, opened as a gateway."""
    async with opened_gateway(database) as opened:
        yield opened


@pytest.fixture
async def key(database: Database) -> ApiKey:
    """Key of the project alpha."""
    return await add_key(database, "alpha")


def sessions(gateway: OpenDatabase, redis: Redis, **lifetimes: timedelta) -> Sessions:
    """Sessions of one gateway."""
    return Sessions(redis, NAMES, authenticator(gateway, redis), **lifetimes)


async def is_known(pages: Sessions, cookie: str) -> bool:
    """Whether a cookie belongs to a session."""
    try:
        await pages.find(cookie)
    except Unauthenticated:
        return False
    return True


async def test_a_key_opens_sessions_that_every_gateway_finds(
    gateway: OpenDatabase, redis: Redis, key: ApiKey
) -> None:
    """Each session has its own cookie and CSRF token, and the caller of its key."""
    first, second = sessions(gateway, redis), sessions(gateway, redis)
    opened, other = await first.open_session(key.text), await first.open_session(key.text)
    found = await second.find(opened.cookie)
    assert (found.caller.key_id, found.caller.project) == (key.id, "alpha")
    found.check_form(opened.csrf_token)
    assert other.cookie != opened.cookie
    with pytest.raises(Forbidden):
        found.check_form(other.csrf_token)
    with pytest.raises(Unauthenticated):
        await first.open_session(ApiKey.new().text)


async def test_a_ticket_opens_one_session(gateway: OpenDatabase, redis: Redis, key: ApiKey) -> None:
    """A ticket works once, at any gateway, and a session's cookie is not a ticket."""
    pages = sessions(gateway, redis)
    ticket = await pages.issue_ticket(key.text)
    opened = await sessions(gateway, redis).redeem(ticket)
    assert opened.caller.key_id == key.id
    for refused in (ticket, opened.cookie, "", "hrt_", "ü" * 47):
        with pytest.raises(Unauthenticated, match="used before, or is too old"):
            await pages.redeem(refused)
    assert not await is_known(pages, await pages.issue_ticket(key.text))
    with pytest.raises(Unauthenticated):
        await pages.issue_ticket(ApiKey.new().text)


async def test_sessions_and_tickets_expire(
    gateway: OpenDatabase, redis: Redis, key: ApiKey
) -> None:
    """Redis forgets each after its lifetime."""
    pages = sessions(gateway, redis, session_lifetime=SHORT, ticket_lifetime=SHORT)
    cookie = (await pages.open_session(key.text)).cookie
    ticket = await pages.issue_ticket(key.text)

    async def both_are_gone() -> bool:
        return not await redis.keys(f"{NAMES.prefix}:{{gateway.*")

    await eventually(both_are_gone, "session and ticket have expired")
    assert not await is_known(pages, cookie)
    with pytest.raises(Unauthenticated):
        await pages.redeem(ticket)


async def test_lifetimes_are_those_of_the_design(
    gateway: OpenDatabase, redis: Redis, key: ApiKey
) -> None:
    pages = sessions(gateway, redis)
    await pages.issue_ticket(key.text)
    [of_ticket] = await redis.keys(f"{NAMES.prefix}:{{gateway.*")
    assert 0 < await redis.pttl(of_ticket) <= TICKET_LIFETIME.total_seconds() * 1000 == 300_000
    await redis.flushall()
    await pages.open_session(key.text)
    [of_session] = await redis.keys(f"{NAMES.prefix}:{{gateway.*")
    most = SESSION_LIFETIME.total_seconds() * 1000
    assert most - 600_000 < await redis.pttl(of_session) <= most == 43_200_000


async def test_a_session_ends_at_once_for_all_gateways(
    gateway: OpenDatabase, redis: Redis, key: ApiKey
) -> None:
    """Ending one session leaves the other."""
    first, second = sessions(gateway, redis), sessions(gateway, redis)
    ended, other = await first.open_session(key.text), await first.open_session(key.text)
    assert await is_known(second, ended.cookie)
    await first.end(ended.cookie)
    await first.end("no cookie")
    assert not await is_known(second, ended.cookie)
    assert await is_known(second, other.cookie)


async def test_a_session_ends_with_its_key(
    database: Database, gateway: OpenDatabase, redis: Redis, key: ApiKey
) -> None:
    """A gateway that does not remember the retired key refuses its sessions and tickets."""
    pages = sessions(gateway, redis)
    cookie = (await pages.open_session(key.text)).cookie
    ticket = await pages.issue_ticket(key.text)
    async with register(database) as keys:
        await keys.retire(key.id)
    another = sessions(gateway, redis)
    assert not await is_known(another, cookie)
    with pytest.raises(Unauthenticated):
        await another.redeem(ticket)


async def test_redis_has_nothing_that_opens_a_session(
    gateway: OpenDatabase, redis: Redis, key: ApiKey
) -> None:
    """Neither cookie, ticket nor secret is in Redis, and its keys' hashes are not accepted."""
    pages = sessions(gateway, redis)
    opened = await pages.open_session(key.text)
    ticket = await pages.issue_ticket(key.text)
    names = await redis.keys("*")
    stored = str(names) + str(await redis.mget(names))
    assert key.id in stored
    for secret in (opened.cookie, opened.csrf_token, ticket, key.secret):
        assert secret not in stored
        assert secret.removeprefix("hrs_").removeprefix("hrt_") not in stored
