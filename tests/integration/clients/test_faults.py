"""Clients through networks and load balancers that fail: a change is one event, come what may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from opentelemetry.sdk.trace import TracerProvider
from redis.asyncio import Redis

from events.names import Names, Topic
from headrace_client import (
    AsyncHeadrace,
    AsyncProject,
    DocumentIndexed,
    Headrace,
    HeadraceError,
    NotFound,
    Receipt,
    Unavailable,
    UsageError,
)
from tests.support.gateways import Gateway
from tests.support.http_front import Front, Refusal, http_front
from tests.support.proxy import Fault, Proxy, Way, running_proxy
from tests.support.waiting import eventually

HERONS = "Herons nest in March."
WAIT = timedelta(seconds=60)
OUTCOME = timedelta(seconds=20)
ATTEMPT = timedelta(seconds=6)
DEADLINE = timedelta(seconds=90)
PUBLISHED = b"/changes"
LOG = (Topic.CHANGED_LIVE, Topic.CHANGED_BULK)
Published = Callable[[], Awaitable[int]]


@pytest.fixture
async def proxy(served: Gateway) -> AsyncIterator[Proxy]:
    async with running_proxy(served.url) as proxy:
        yield proxy


@pytest.fixture
async def front(served: Gateway) -> AsyncIterator[Front]:
    async with http_front(served.url) as front:
        yield front


@asynccontextmanager
async def project(served: Gateway, url: str) -> AsyncIterator[AsyncProject]:
    key = await served.key()
    async with AsyncHeadrace(url, key, deadline=DEADLINE, attempt_timeout=ATTEMPT) as client:
        yield client.project(served.project)


@pytest.fixture
async def published(redis_server: str, served: Gateway) -> AsyncIterator[Published]:
    """Function that counts the changes that were added to the log since the test began."""
    names = Names()
    async with Redis.from_url(redis_server) as redis:

        async def added() -> int:
            lengths = [await redis.xlen(names.stream(topic)) for topic in LOG]
            trimmed = await redis.hvals(names.trimmed(0))
            return sum(lengths) + sum(map(int, trimmed))

        before = await added()

        async def since() -> int:
            return await added() - before

        yield since


@pytest.mark.parametrize(
    ("way", "fault"),
    [
        (Way.TO_SERVER, Fault.RESET),
        (Way.TO_SERVER, Fault.CUT),
        (Way.TO_SERVER, Fault.SWALLOW),
        (Way.TO_CLIENT, Fault.RESET),
        (Way.TO_CLIENT, Fault.CUT),
    ],
)
async def test_a_change_is_one_event_on_a_network_that_fails(
    served: Gateway, proxy: Proxy, published: Published, fault: Fault, way: Way
) -> None:
    """The request, or the response of a request that was handled, is lost twice."""
    async with project(served, proxy.url) as docs:
        trap = proxy.trap(way, PUBLISHED if way is Way.TO_SERVER else b"receipts", fault, times=2)
        receipt = await docs.upsert("herons.md", HERONS)
        assert trap.struck == 2
        assert (await docs.wait([receipt], WAIT))[receipt.token].state == "indexed"
    assert await published() == 1


async def test_a_change_is_one_event_after_a_stall(
    served: Gateway, proxy: Proxy, published: Published
) -> None:
    """The network stalls for longer than an attempt, and then delivers what it held."""
    async with project(served, proxy.url) as docs:
        proxy.stall()
        publishing = asyncio.create_task(docs.upsert("herons.md", HERONS))
        await eventually(lambda: proxy.accepted >= 2, "there is a second attempt", timeout=30)
        proxy.heal()
        receipt = await publishing
        assert (await docs.wait([receipt], WAIT))[receipt.token].state == "indexed"
    assert await published() == 1


@pytest.mark.parametrize("after", [False, True], ids=["refused", "handled"])
@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_change_is_one_event_behind_a_load_balancer_that_fails(
    served: Gateway, front: Front, published: Published, status: int, after: bool
) -> None:
    refusal = Refusal(status, {"Retry-After": "0"}, after=after)
    front.refuse(refusal, refusal, refusal)
    async with project(served, front.url) as docs:
        receipt = await docs.upsert("herons.md", HERONS)
        assert receipt.duplicate == after
        assert len(front.requests) == 4
        assert len({request.headers["x-request-id"] for request in front.requests}) == 1
        await docs.wait([receipt], WAIT)
    assert await published() == 1


async def test_the_blocking_client_retries_too(
    served: Gateway, front: Front, published: Published, key: str
) -> None:
    front.refuse(Refusal(503, after=True), Refusal(502))

    def publish() -> Receipt:
        with Headrace(front.url, key, deadline=DEADLINE) as client:
            return client.project(served.project).upsert("herons.md", HERONS)

    receipt = await asyncio.to_thread(publish)
    assert receipt.duplicate
    assert len(front.requests) == 3
    assert await published() == 1


async def test_a_batch_is_published_once_on_a_network_that_fails(
    served: Gateway, proxy: Proxy, published: Published
) -> None:
    async with project(served, proxy.url) as docs:
        trap = proxy.trap(Way.TO_CLIENT, b"receipts", Fault.RESET, times=2)
        async with docs.batch() as batch:
            for number in range(400):
                await batch.upsert(f"{number:03}.md", f"Note {number}.")
        assert trap.struck == 2
        [*_, last] = [state async for state in batch.follow(patience=WAIT)]
        assert (last.indexed, last.waiting) == (400, 0)
    assert await published() == 400


async def test_a_question_is_answered_on_a_network_that_fails(
    served: Gateway, proxy: Proxy
) -> None:
    async with project(served, proxy.url) as docs:
        receipt = await docs.upsert("herons.md", HERONS)
        proxy.trap(Way.TO_CLIENT, b"query_id", Fault.RESET, times=2)
        assert len(await docs.ask("herons", min_event=receipt, timeout=WAIT)) == 1


async def test_a_put_document_is_one_event_behind_a_load_balancer_that_fails(
    served: Gateway, front: Front, published: Published
) -> None:
    front.refuse(Refusal(502), Refusal(503, after=True))
    async with project(served, front.url) as docs:
        put = await docs.put("herons.md", HERONS, wait=OUTCOME)
    assert put.outcome is not None
    assert len(front.requests) == 3
    assert await published() == 1


async def test_a_move_succeeds_although_an_earlier_attempt_has_moved_it(
    served: Gateway, front: Front, published: Published
) -> None:
    """The second attempt does not find the old uri, and yet has the receipt of the first."""
    async with project(served, front.url) as docs:
        await docs.put("herons.md", HERONS, wait=OUTCOME)
        front.refuse(Refusal(503, after=True))
        moved = await docs.move("birds.md", "herons.md", wait=OUTCOME)
        assert moved.duplicate
        assert moved.outcome is not None
        with pytest.raises(NotFound):
            await docs.move("birds.md", "herons.md")
    assert await published() == 2


async def test_outcomes_follow_once_over_lost_connections(served: Gateway, proxy: Proxy) -> None:
    """Also those that come while there is no connection."""
    async with (
        project(served, served.url) as publisher,
        project(served, proxy.url) as docs,
        docs.follow() as outcomes,
    ):
        uris: list[str] = []
        for fault in (None, Fault.CUT, Fault.RESET):
            if fault is not None:
                proxy.reset()
                proxy.trap(Way.TO_CLIENT, b"event: document.indexed", fault)
            receipts = [
                await publisher.upsert(f"{fault}-{number}.md", HERONS) for number in range(3)
            ]
            await publisher.wait(receipts, WAIT)
            while len(uris) % 3 or f"{fault}-0.md" not in uris:
                outcome = await anext(outcomes)
                if isinstance(outcome, DocumentIndexed):
                    uris.append(outcome.uri)
    expected = [
        f"{fault}-{number}.md" for fault in (None, Fault.CUT, Fault.RESET) for number in range(3)
    ]
    assert sorted(uris) == sorted(expected)
    assert proxy.accepted >= 4


async def test_a_stream_is_refused_until_the_deadline(served: Gateway, front: Front) -> None:
    """It is opened like any other call; another server is recognised."""
    front.refuse(Refusal(503), Refusal(200))
    async with project(served, front.url) as docs:
        with pytest.raises(HeadraceError, match="not an event stream; check that HEADRACE_URL"):
            async with docs.follow():
                pass
    assert len(front.requests) == 2


async def test_the_rate_of_a_key_is_obeyed(served: Gateway, published: Published) -> None:
    """The gateway itself refuses, and says when the rate is restored."""
    key = await served.key(requests_per_minute=60)
    async with AsyncHeadrace(served.url, key, deadline=DEADLINE) as client:
        docs = client.project(served.project)
        receipts = [await docs.upsert(f"{number}.md", HERONS) for number in range(62)]
    assert {receipt.duplicate for receipt in receipts} == {False}
    assert await published() == 62


REFUSALS = {
    "a wrong request": Refusal(422, {"Retry-After": "0"}),
    "a wait beyond the deadline": Refusal(503, {"Retry-After": "3600"}),
    "a problem that is final": Refusal(503, body=b'{"code": "Unavailable", "retryable": false}'),
    "a defect": Refusal(500),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_what_cannot_succeed_is_not_retried(
    served: Gateway, front: Front, refusal: Refusal
) -> None:
    front.refuse(refusal)
    async with project(served, front.url) as docs:
        with pytest.raises(HeadraceError, match="the status"):
            await docs.upsert("herons.md", HERONS)
    assert len(front.requests) == 1


async def test_a_gateway_that_stays_away_is_unavailable_at_the_deadline(served: Gateway) -> None:
    async with running_proxy(served.url) as proxy:
        url = proxy.url
    async with AsyncHeadrace(url, "hr_00000000_key", deadline=timedelta(seconds=2)) as client:
        with pytest.raises(Unavailable) as error:
            await client.projects()
    assert error.value.retryable
    assert error.value.request_id is not None


async def test_the_trace_of_the_caller_goes_along(served: Gateway, front: Front) -> None:
    tracer = TracerProvider().get_tracer("caller")
    async with project(served, front.url) as docs:
        with tracer.start_as_current_span("caller") as span:
            await docs.upsert("herons.md", HERONS)
        await docs.upsert("herons.md", HERONS)
    traced, untraced = front.requests
    assert f"{span.get_span_context().trace_id:032x}" in traced.headers["traceparent"]
    assert "traceparent" not in untraced.headers


async def test_another_server_is_recognised(served: Gateway, front: Front) -> None:
    front.refuse(Refusal(200))
    async with project(served, front.url) as docs:
        with pytest.raises(HeadraceError, match=r"can't be read: .*; check that HEADRACE_URL"):
            await docs.upsert("herons.md", HERONS)


async def test_a_problem_is_raised_with_its_parts(served: Gateway) -> None:
    async with project(served, served.url) as docs:
        with pytest.raises(UsageError) as error:
            await docs.ask(" ")
    assert error.value.problem["status"] == 422
    assert error.value.problem["type"] == "urn:headrace:problem:UsageError"
    assert error.value.problem["instance"] == f"urn:uuid:{error.value.request_id}"
