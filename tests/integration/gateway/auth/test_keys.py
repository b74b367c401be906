"""Authentication by API keys, with real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from redis.asyncio import Redis

from gateway.auth import rates
from gateway.auth.callers import Caller, Right
from gateway.auth.keys import REMEMBERED_SECONDS, Authenticator
from gateway.auth.rates import FAILURES_PER_MINUTE
from runtime.errors import RateLimited, Unauthenticated, UnknownProject
from store.keys.api_keys import AdmittedKey, ApiKey, ApiKeys
from store.postgres.pool import Database as OpenDatabase
from tests.support.api_keys import add_key, authenticator, opened_gateway, register
from tests.support.databases import Database

ADDRESS = "203.0.113.9"


class Clock:
    """Monotonic clock that stands still until a test moves it forward."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0
        self._started = time.monotonic()

    def __call__(self) -> float:
        return self._started + self.ahead_seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Clock of the remembered keys."""
    clock = Clock()
    monkeypatch.setattr("runtime.intervals.monotonic", clock)
    monkeypatch.setattr("gateway.auth.keys.time", SimpleNamespace(monotonic=clock))
    return clock


@pytest.fixture
async def gateway(database: Database) -> AsyncIterator[OpenDatabase]:
    """The database, opened as a gateway."""
    async with opened_gateway(database) as opened:
        yield opened


async def test_a_key_decides_who_the_caller_is(
    database: Database, gateway: OpenDatabase, redis: Redis
) -> None:
    """Project, agent, rights and limits come from the key."""
    key = await add_key(database, "alpha", {"read", "publish"}, agent="ann", requests_per_minute=5)
    caller = await authenticator(gateway, redis).authenticate(key.text, ADDRESS)
    rights = frozenset({Right.READ, Right.PUBLISH})
    assert caller == Caller(key.id, "alpha", "ann", rights, 5, None)
    with pytest.raises(UnknownProject):
        caller.scope("beta")


async def test_a_retired_key_works_for_five_seconds_at_most(
    database: Database, gateway: OpenDatabase, redis: Redis, clock: Clock
) -> None:
    """A gateway that remembers the key accepts it for five seconds; another refuses it at once."""
    key = await add_key(database, "alpha")
    keys = authenticator(gateway, redis)
    await keys.authenticate(key.text)
    async with register(database) as records:
        await records.retire(key.id)
    assert (await keys.authenticate(key.text)).key_id == key.id
    with pytest.raises(Unauthenticated):
        await authenticator(gateway, redis).authenticate(key.text)
    clock.ahead_seconds = REMEMBERED_SECONDS + 0.001
    with pytest.raises(Unauthenticated):
        await keys.authenticate(key.text)


async def test_every_wrong_key_is_refused_in_the_same_words(
    database: Database, gateway: OpenDatabase, redis: Redis
) -> None:
    """The error does not reveal whether a key exists, and a valid key stays valid beside it."""
    key, retired = await add_key(database, "alpha"), await add_key(database, "alpha")
    async with register(database) as records:
        await records.retire(retired.id)
    keys = authenticator(gateway, redis)
    await keys.authenticate(key.text)
    wrong = (
        "",
        "not a key",
        ApiKey.new().text,
        ApiKey(key.id, ApiKey.new().secret).text,
        key.text[:-1],
        f"Bearer {key.text}",
        retired.text,
    )
    messages = set()
    for token in wrong:
        with pytest.raises(Unauthenticated) as refused:
            await keys.authenticate(token)
        messages.add(str(refused.value))
    assert len(messages) == 1
    assert (await keys.authenticate(key.text)).key_id == key.id


async def test_failed_attempts_of_an_address_are_limited(
    database: Database, gateway: OpenDatabase, redis: Redis
) -> None:
    """After 20 failures in a minute, all gateways refuse wrong keys, from this address alone."""
    first, second = (authenticator(gateway, redis) for _ in range(2))
    for attempt in range(FAILURES_PER_MINUTE):
        with pytest.raises(Unauthenticated):
            await (first, second)[attempt % 2].authenticate(ApiKey.new().text, ADDRESS)
    for keys in (first, second):
        refused = await _refusal(keys)
        assert refused.retry_after is not None
        assert 0 < refused.retry_after.total_seconds() <= 60 / FAILURES_PER_MINUTE
    with pytest.raises(Unauthenticated):
        await first.authenticate(ApiKey.new().text, "2001:db8::1")


async def _refusal(keys: Authenticator) -> RateLimited:
    """Fail until the limit refuses it: meanwhile each three seconds have restored one failure."""
    for _ in range(FAILURES_PER_MINUTE):
        try:
            await keys.authenticate(ApiKey.new().text, ADDRESS)
        except RateLimited as refused:
            return refused
        except Unauthenticated:
            continue
    raise AssertionError("no failure is refused")


class Counting(ApiKeys):
    """Keys that count how many of them Postgres looks up at once."""

    current = most = 0

    async def admit(self, key_id: str, digest: bytes) -> AdmittedKey | None:
        self.current += 1
        self.most = max(self.most, self.current)
        try:
            return await super().admit(key_id, digest)
        finally:
            self.current -= 1


async def test_a_valid_key_passes_among_failed_attempts_of_its_address(
    database: Database, gateway: OpenDatabase, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is used for the first time; the keys of such an address wait for one another."""
    key = await add_key(database, "alpha")
    keys = authenticator(gateway, redis)
    monkeypatch.setattr(rates, "FAILURES_PER_MINUTE", 1)  # which takes a minute to be restored
    with pytest.raises(Unauthenticated):
        await keys.authenticate(ApiKey.new().text, ADDRESS)
    keys._api_keys = counting = Counting(gateway)
    tokens = [*(ApiKey.new().text for _ in range(10)), key.text]
    results = await asyncio.gather(
        *(keys.authenticate(token, ADDRESS) for token in tokens), return_exceptions=True
    )
    assert all(isinstance(result, RateLimited) for result in results[:-1])
    assert isinstance(results[-1], Caller)
    assert (results[-1].key_id, counting.most) == (key.id, 1)


async def test_valid_keys_are_not_limited_by_address(
    database: Database, gateway: OpenDatabase, redis: Redis
) -> None:
    """Only failures count, even without any remembered key."""
    key = await add_key(database, "alpha")
    for _ in range(2 * FAILURES_PER_MINUTE):
        await authenticator(gateway, redis).authenticate(key.text, ADDRESS)
