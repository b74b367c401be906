"""Rate limits of a provider, shared by all workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from events.names import Names
from events.rate_limits import LONGEST_HOLD, RateLimiter, RateLimits, read_held
from events.server.connection import connect
from processors.embedders.embedder import Urgency
from processors.embedders.remote.embedder import LiteLLMEmbedder
from processors.embedders.remote.rate_limiter import RequestQueue
from runtime.errors import RateLimited, Unavailable
from tests.support.model_server import ModelServer, running_server, status
from tests.support.waiting import eventually, patience, within

NAMES = Names()
HUNDRED_AT_ONCE = 1000
"""Limit per minute, a tenth of which is the burst."""


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with running_server() as server:
        yield server


def turns_at(redis: Redis, requests: int = 0, tokens: int = 0) -> RateLimiter:
    return RateLimiter(redis, NAMES, RateLimits({"": requests}, {"voyage": tokens}))


async def taken(
    rate_limiter: RateLimiter, *, urgent: bool, tokens: int = 1, most: int = 500
) -> int:
    """Number of requests granted before the first wait."""
    for count in range(most):
        if await rate_limiter.acquire("voyage", tokens, urgent=urgent):
            return count
    return most


def restored_since(begun: float) -> float:
    """Most requests that were restored since a moment (monotonic), and the one that waits."""
    return 1 + (time.monotonic() - begun) * HUNDRED_AT_ONCE / 60


@pytest.mark.parametrize(
    ("limits", "tokens"), [((HUNDRED_AT_ONCE, 0), 1), ((0, 10 * HUNDRED_AT_ONCE), 10)]
)
async def test_documents_leave_turns_to_questions(
    redis: Redis, limits: tuple[int, int], tokens: int
) -> None:
    """Two workers share a limit, and its last fifth is reserved for questions."""
    first, second = turns_at(redis, *limits), turns_at(redis, *limits)
    begun = time.monotonic()
    documents = await taken(first, urgent=False, tokens=tokens)
    assert 80 <= documents <= 80 + restored_since(begun)
    documents += await taken(second, urgent=False, tokens=tokens)
    assert documents <= 80 + restored_since(begun)
    questions = await taken(second, urgent=True, tokens=tokens)
    assert questions >= 15
    assert documents + questions <= 100 + restored_since(begun)


async def test_no_minute_has_more_than_the_limit(redis: Redis) -> None:
    """Burst and refill together stay within the limit of a minute."""
    rate_limiter = turns_at(redis, HUNDRED_AT_ONCE)
    await taken(rate_limiter, urgent=True)
    while not (wait := await rate_limiter.acquire("voyage", 1, urgent=True)):
        pass  # one was restored meanwhile
    each_ms = 60_000 / (HUNDRED_AT_ONCE - 100 + 1)
    assert wait <= timedelta(milliseconds=each_ms + 1)


async def test_a_request_over_the_limit_is_not_refused_for_ever(redis: Redis) -> None:
    """A request over the limit is granted first and makes later ones wait."""
    rate_limiter = turns_at(redis, tokens=1000)
    assert not await rate_limiter.acquire("voyage", 5000, urgent=False)
    assert await rate_limiter.acquire("voyage", 1, urgent=True) > timedelta(minutes=4)


async def test_without_limits_no_request_waits(redis: Redis) -> None:
    """A provider's limit does not affect other providers."""
    rate_limiter = turns_at(redis, tokens=1)
    assert not any([await rate_limiter.acquire("openai", 10**6, urgent=False) for _ in range(20)])


async def test_a_wish_to_wait_holds_back_all_workers(redis: Redis) -> None:
    """The longest Retry-After holds back all workers, up to a minute."""
    first, second = turns_at(redis), turns_at(redis)
    await first.block_requests("voyage", timedelta(hours=6))
    await first.block_requests("voyage", timedelta(seconds=1))
    wait = await second.acquire("voyage", 1, urgent=True)
    assert LONGEST_HOLD - timedelta(seconds=5) < wait <= LONGEST_HOLD
    assert not await second.acquire("openai", 1, urgent=True)
    held = await read_held(redis, NAMES, ["voyage", "openai"])
    assert 55 < held["voyage"] <= 60
    assert held["openai"] == 0


async def test_a_question_does_without_a_model_that_wants_a_wait(redis: Redis) -> None:
    """A question raises RateLimited at once instead of waiting for a held provider."""
    rate_limiter = turns_at(redis)
    await rate_limiter.block_requests("voyage", timedelta(minutes=1))
    begun = time.monotonic()
    with pytest.raises(RateLimited) as refused:
        await RequestQueue("voyage", rate_limiter).acquire(1, Urgency.QUERY)
    assert refused.value.retry_after is not None
    assert time.monotonic() - begun < patience(1)


async def test_redis_out_of_reach_is_no_failure_of_the_model(server: ModelServer) -> None:
    """An unreachable Redis raises Unavailable, sends nothing and does not open the circuit."""
    unreachable = connect("redis://127.0.0.1:9")
    embedder = _embedder(server, turns_at(unreachable))
    for _ in range(6):
        with pytest.raises(Unavailable, match="Redis"):
            await embedder.embed(["text"], Urgency.LIVE)
    assert not server.requests
    assert not embedder.circuit.is_open
    await unreachable.aclose()


async def test_one_worker_s_retry_after_keeps_another_from_asking(
    redis: Redis, server: ModelServer
) -> None:
    """A Retry-After to one worker delays the requests of another."""
    first, second = (_embedder(server, turns_at(redis), retries=1) for _ in range(2))
    await first.start()
    await second.start()
    server.requests.clear()
    server.faults.append(status(429, Retry_After="1"))
    begun = time.monotonic()
    refused = asyncio.create_task(first.embed(["first"], Urgency.LIVE))

    async def is_held() -> bool:
        return refused.done() or await _is_held(redis)  # a slow machine may miss the second

    async with within(10):
        await eventually(is_held, "the provider is left alone")
        await second.embed(["second"], Urgency.LIVE)
        assert time.monotonic() - begun >= 1
        await refused
    assert len(server.requests) == 3


async def _is_held(redis: Redis) -> bool:
    return bool((await read_held(redis, NAMES, ["openai"]))["openai"])


def _embedder(server: ModelServer, rate_limiter: RateLimiter, retries: int = 0) -> LiteLLMEmbedder:
    return LiteLLMEmbedder(
        "openai/test-model", server.key, server.base_url, retries=retries, rate_limiter=rate_limiter
    )
