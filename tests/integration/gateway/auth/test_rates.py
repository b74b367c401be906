"""Rate limits of callers, in a real Redis."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from events.server.connection import connect
from gateway.auth.callers import Caller, Right
from gateway.auth.rates import Rates
from runtime.errors import RateLimited, Unavailable
from tests.support.api_keys import NAMES

RIGHTS = frozenset({Right.ASK, Right.PUBLISH})


def caller(
    requests: int | None = None, size: int | None = None, key_id: str = "abcd1234"
) -> Caller:
    return Caller(key_id, "alpha", None, RIGHTS, requests, size)


async def spent(rates: Rates, holder: Caller) -> bool:
    """Whether one request passed."""
    try:
        await rates.spend_request(holder)
    except RateLimited:
        return False
    return True


async def test_a_limit_holds_for_all_gateways_together(redis: Redis, redis_url: str) -> None:
    """Of 200 requests at once through two gateways, a limit of 60 passes 60 and those restored."""
    other = connect(redis_url)
    gateways = [Rates(redis, NAMES), Rates(other, NAMES)]
    passed = await asyncio.gather(
        *(spent(gateways[number % 2], caller(requests=60)) for number in range(200))
    )
    seconds_of_refill = 10
    assert 60 <= sum(passed) <= 60 + seconds_of_refill
    assert await spent(gateways[0], caller(requests=60, key_id="another1"))
    await other.aclose()


async def test_a_refusal_says_when_to_come_back(redis: Redis) -> None:
    """The wait is the time in which one unit is restored; the rest counts down to 0."""
    rates = Rates(redis, NAMES, requests_per_minute=3)
    rests = [(await rates.spend_request(caller())).remaining for _ in range(3)]
    assert rests == [2, 1, 0]
    with pytest.raises(RateLimited, match="3 requests per minute") as refused:
        await rates.spend_request(caller())
    assert refused.value.retry_after is not None
    assert timedelta() < refused.value.retry_after <= timedelta(seconds=20)


async def test_bytes_beyond_the_limit_are_paid_for_later(redis: Redis) -> None:
    """A document over the limit passes once; then the debt is waited for."""
    rates = Rates(redis, NAMES, bytes_per_minute=1_000)
    allowance = await rates.spend_bytes(caller(), 3_000)
    assert allowance.remaining == 0
    assert timedelta(seconds=170) < allowance.reset <= timedelta(seconds=180)
    with pytest.raises(RateLimited) as refused:
        await rates.spend_bytes(caller(), 1)
    assert refused.value.retry_after is not None
    assert timedelta(seconds=110) < refused.value.retry_after <= timedelta(seconds=121)
    assert (await rates.spend_request(caller())).remaining > 0


async def test_a_key_s_own_limit_replaces_the_usual_one(redis: Redis) -> None:
    """A limit of 0 means none."""
    rates = Rates(redis, NAMES, requests_per_minute=1, bytes_per_minute=1)
    assert (await rates.spend_request(caller(requests=5))).limit == 5
    for _ in range(3):
        assert (await rates.spend_request(caller(requests=0, key_id="free0000"))).limit == 0
        assert (await rates.spend_bytes(caller(size=0, key_id="free0000"), 10**9)).limit == 0


async def test_keys_of_limits_expire(redis: Redis) -> None:
    """Redis keeps nothing of a caller whose limits are restored."""
    rates = Rates(redis, NAMES, requests_per_minute=1)
    await rates.spend_request(caller())
    await rates.record_failure("203.0.113.9")
    keys = await redis.keys(f"{NAMES.prefix}:{{gateway.*")
    assert len(keys) == 2
    for key in keys:
        assert 0 < await redis.pttl(key) <= 60_001


async def test_without_redis_nothing_passes() -> None:
    nowhere = connect("redis://127.0.0.1:1/0")
    with pytest.raises(Unavailable):
        await Rates(nowhere, NAMES).spend_request(caller())
    await nowhere.aclose()
