"""Hosts, origins and bodies that the gateway accepts."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI, Request

from gateway.http import problems
from gateway.http.middleware import CONTENT_SECURITY_POLICY, Guard, RequestLog
from runtime import metrics

_LIMIT = 4_000


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    app = FastAPI()
    app.add_middleware(
        Guard,
        hosts=["kb.example.org"],
        origins=["https://notes.example.org"],
        max_document_bytes=_LIMIT,
    )
    app.add_middleware(RequestLog)
    problems.install(app)

    @app.put("/document")
    async def size(request: Request) -> int:
        return len(await request.body())

    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8420", "localhost:1", "[::1]:8420", "[::1]", "KB.example.org"],
)
async def test_known_hosts_are_served(client: httpx2.AsyncClient, host: str) -> None:
    response = await client.put("/document", content=b"herons", headers={"Host": host})
    assert (response.status_code, response.json()) == (200, 6)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8420",
        "kb.example.org.evil.example",
        "xkb.example.org",
        "127.0.0.1:8420:8420",
        "",
    ],
)
async def test_other_hosts_are_misdirected(client: httpx2.AsyncClient, host: str) -> None:
    response = await client.put("/document", content=b"herons", headers={"Host": host})
    problem = response.json()
    assert (response.status_code, problem["code"]) == (421, "MisdirectedRequest")
    assert "HEADRACE_GATEWAY" in problem["remedy"]
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1", 200),
        ("https://notes.example.org", 200),
        ("https://127.0.0.1", 403),
        ("http://127.0.0.1:9", 403),
        ("http://localhost", 403),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_pages_of_other_origins_are_refused(
    client: httpx2.AsyncClient, origin: str, status: int
) -> None:
    response = await client.put("/document", content=b"herons", headers={"Origin": origin})
    assert response.status_code == status


async def test_a_body_may_have_the_whole_limit_and_no_more(client: httpx2.AsyncClient) -> None:
    assert (await client.put("/document", content=b"h" * _LIMIT)).json() == _LIMIT
    response = await client.put("/document", content=b"h" * (_LIMIT + 1))
    assert (response.status_code, response.json()["code"]) == (413, "BodyTooLarge")


async def test_a_body_without_length_is_counted_while_it_comes(client: httpx2.AsyncClient) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100 * _LIMIT:
            sent += 1_000
            yield b"h" * 1_000

    response = await client.put("/document", content=endless())
    assert (response.status_code, response.json()["code"]) == (413, "BodyTooLarge")


async def test_a_packed_body_is_unpacked_up_to_the_limit(client: httpx2.AsyncClient) -> None:
    async def status(packed: bytes, encoding: str = "gzip") -> int:
        response = await client.put(
            "/document", content=packed, headers={"Content-Encoding": encoding}
        )
        return response.status_code

    response = await client.put(
        "/document", content=gzip.compress(b"herons"), headers={"Content-Encoding": "gzip"}
    )
    assert response.json() == 6
    assert await status(gzip.compress(b"h" * (_LIMIT + 1))) == 413
    assert await status(gzip.compress(b"\0" * 10_000_000)) == 413
    assert await status(gzip.compress(b"herons")[:-4]) == 400
    assert await status(b"herons") == 400
    assert await status(zlib.compress(b"herons"), "deflate") == 415
    assert await status(b"herons", "br") == 415


async def test_every_response_has_the_headers_of_security_and_an_id(
    client: httpx2.AsyncClient,
) -> None:
    wanted = "5f2f3c4e-3b1f-4a51-9c1c-0d6b0d1f3a10"
    for path, status in (("/document", 405), ("/nothing", 404)):
        response = await client.get(path, headers={"X-Request-Id": wanted})
        assert response.status_code == status
        assert response.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["x-request-id"] == wanted
        assert response.json()["instance"] == f"urn:uuid:{wanted}"
    response = await client.get("/nothing", headers={"X-Request-Id": "a\tb"})
    assert response.headers["x-request-id"] != wanted


async def test_a_request_names_the_trace_of_its_caller(client: httpx2.AsyncClient) -> None:
    trace_id = "5af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
    await client.put("/document", content=b"herons", headers=headers)
    exemplars = [
        sample.exemplar.labels["trace_id"]
        for family in metrics.HTTP_REQUEST_SECONDS.families()
        for sample in family.samples
        if sample.exemplar is not None and sample.labels["route"] == "/document"
    ]
    assert trace_id in exemplars


async def test_bytes_of_bodies_are_counted_as_they_were_received(
    client: httpx2.AsyncClient,
) -> None:
    """Those of a packed body before it is unpacked, and none for a request without a body."""

    def counted() -> dict[str, float]:
        return metrics.HTTP_BODY_BYTES.read()

    series = "headrace_http_body_bytes_total{route=/document,method=PUT}"
    before = counted()
    packed = gzip.compress(b"h" * _LIMIT)
    await client.put("/document", content=packed, headers={"Content-Encoding": "gzip"})
    await client.put("/document", content=b"herons")
    await client.get("/document")
    assert counted() == before | {series: before.get(series, 0) + len(packed) + 6}
