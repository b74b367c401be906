"""Clients that send slowly, wrongly, too much, or not to the end."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from socket import IPPROTO_TCP, SO_RCVBUF, SOL_SOCKET, TCP_NODELAY, create_server
from socket import socket as new_socket
from urllib.parse import urlsplit

import httpx2
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from gateway.app import _ROUTERS
from gateway.http import middleware
from gateway.http.connections import HEAD_BYTES, Connection, server_config
from gateway.http.services import KeyedRoute
from runtime.embedded import EmbeddedPostgres
from tests.integration.gateway.http.test_streams import stream
from tests.support.databases import fresh_database
from tests.support.gateways import Gateway, gateway
from tests.support.streams import emptied
from tests.support.waiting import eventually, patience, within

_HOST = "Host: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
async def served(
    redis_server: str, postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Gateway]:
    """A gateway without a worker, with low limits of time and for one stream."""
    await emptied(redis_server)
    home = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "head_seconds", patience(0.5))
        patch.setattr(middleware, "_BODY_SECONDS", patience(0.5))
        async with (
            fresh_database(postgres_server) as database,
            gateway(redis_server, database, home=home, gateway={"streams": 1}) as running,
        ):
            yield running


class Socket:
    """A connection that sends what it is given, byte for byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, text: str | bytes) -> None:
        """Send text."""
        self._writer.write(text.encode() if isinstance(text, str) else text)
        await self._writer.drain()

    def end(self) -> None:
        """Close the direction to the gateway."""
        self._writer.write_eof()

    async def all(self) -> bytes:
        """Everything that the gateway sends until it closes the connection."""
        async with within(20):
            return await self._reader.read()

    async def head(self) -> bytes:
        """The head of one response."""
        async with within(20):
            return await self._reader.readuntil(b"\r\n\r\n")


@asynccontextmanager
async def connected(served: Gateway) -> AsyncIterator[Socket]:
    address = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        yield Socket(reader, writer)
    finally:
        writer.close()


def check_problem(received: bytes, status: int, code: str) -> None:
    """Check that a response is a problem with its remedy."""
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), received
    assert b"content-type: application/problem+json" in head.lower()
    problem = json.loads(body)
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["remedy"]


async def check_alive(served: Gateway) -> None:
    async with httpx2.AsyncClient(timeout=60) as client:
        assert (await client.get(f"{served.url}/healthz")).status_code == 200


async def test_a_slow_head_is_refused(served: Gateway) -> None:
    """Also if each byte comes soon after the one before."""
    async with connected(served) as socket:
        await socket.send("GET /healthz HTTP/1.1\r\n")

        async def drip() -> None:
            while True:
                await socket.send("a: b\r\n")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        check_problem(await socket.all(), 408, "RequestTimeout")
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def test_a_silent_connection_is_closed(served: Gateway) -> None:
    async with connected(served) as socket:
        assert await socket.all() == b""


async def test_a_slow_head_after_a_request_is_refused(served: Gateway) -> None:
    async with connected(served) as socket:
        await socket.send(f"GET /healthz HTTP/1.1\r\n{_HOST}\r\nGET /healthz HTTP/1.1\r\na")
        received = await socket.all()
    assert received.count(b"HTTP/1.1 200") == 1
    assert received.count(b"HTTP/1.1 408") == 1


async def test_an_idle_connection_stays_open(served: Gateway) -> None:
    """The time for a head does not count before its first byte."""
    async with connected(served) as socket:
        await socket.send(f"GET /healthz HTTP/1.1\r\n{_HOST}\r\n")
        assert b"200" in await socket.head()
        async with connected(served) as other:
            assert await other.all() == b"", "a connection is closed after the time for a head"
        await socket.send(f"GET /healthz HTTP/1.1\r\n{_HOST}\r\n")
        received = await socket.head()
    assert b"HTTP/1.1 200" in received


async def test_a_slow_body_is_refused(served: Gateway) -> None:
    key = await served.key()
    head = (
        f"PUT /v1/projects/docs/document?uri=a.md HTTP/1.1\r\n{_HOST}"
        f"Authorization: Bearer {key}\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n"
    )
    async with connected(served) as socket:
        await socket.send(head + "part")
        check_problem(await socket.all(), 408, "RequestTimeout")


async def test_the_rest_of_a_refused_body_is_not_awaited(served: Gateway) -> None:
    """A client that goes on sending after a 401 is cut off."""
    head = (
        f"PUT /v1/projects/docs/document?uri=a.md HTTP/1.1\r\n{_HOST}Content-Length: 99999\r\n\r\n"
    )
    async with connected(served) as socket:
        await socket.send(head + "part")
        check_problem(await socket.all(), 401, "Unauthenticated")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/projects/docs/ask",
        "/v1/projects/docs/ask:batch",
        "/v1/projects/docs/changes",
        "/v1/projects/docs/document:move",
        "/rag/index",
        "/rag/retrieve",
        "/mcp",
    ],
)
@pytest.mark.parametrize("key", ["", "Authorization: Bearer hr_AAAAAAAA_" + "A" * 43 + "\r\n"])
async def test_no_body_is_read_before_the_key_is_checked(
    served: Gateway, path: str, key: str
) -> None:
    kind = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    head = f"POST {path} HTTP/1.1\r\n{_HOST}{key}{kind}Content-Length: 99999\r\n\r\n"
    async with connected(served) as socket:
        await socket.send(head)
        check_problem(await socket.all(), 401, "Unauthenticated")


def test_every_route_of_a_caller_checks_the_key_first() -> None:
    routes = [route for router in _ROUTERS for route in router.routes]
    assert len(routes) > 20
    assert {type(route) for route in routes} == {KeyedRoute}


async def test_a_client_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "write_seconds", 0.3)
    written_bytes = 0
    has_ended = False

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client has gone."""
        nonlocal written_bytes, has_ended
        gone = asyncio.ensure_future(_disconnected(receive))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": bytes(2**20), "more_body": True})
            written_bytes += 2**20
        has_ended = True

    with create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(server_config(endless, lifespan="off"))
        serving = asyncio.create_task(server._serve(sockets=[listener]))
        with new_socket() as client:
            client.setsockopt(SOL_SOCKET, SO_RCVBUF, 4096)
            client.connect(listener.getsockname())
            client.sendall(f"GET / HTTP/1.1\r\n{_HOST}\r\n".encode())
            await eventually(lambda: written_bytes > 0, "the response has begun")
            await eventually(lambda: has_ended, "the response has ended")
            await eventually(lambda: not server.server_state.connections, "the connection is gone")
        server.should_exit = True
        await serving


async def test_a_response_of_two_parts_is_sent_at_once() -> None:
    """The kernel would keep the second part back until the client acknowledges the first."""

    async def empty(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(server_config(empty, lifespan="off"))
        serving = asyncio.create_task(server._serve(sockets=[listener]))
        _, writer = await asyncio.open_connection(*listener.getsockname())
        await eventually(lambda: bool(server.server_state.connections), "a connection is open")
        [connection] = server.server_state.connections
        assert isinstance(connection, Connection)
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(IPPROTO_TCP, TCP_NODELAY)
        writer.close()
        server.should_exit = True
        await serving


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@pytest.mark.parametrize(
    "head",
    [
        f"POST /v1/projects/docs/ask HTTP/1.1\r\n{_HOST}Content-Length: -1\r\n\r\n",
        f"POST /v1/projects/docs/ask HTTP/1.1\r\n{_HOST}Content-Length: x\r\n\r\n",
        f"POST / HTTP/1.1\r\n{_HOST}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        f"POST / HTTP/1.1\r\n{_HOST}Transfer-Encoding: gzip\r\n\r\nab",
        f"GET / HTTP/1.1\r\n{_HOST}a\x00b: c\r\n\r\n",
        f"GET / HTTP/1.1\r\n{_HOST} folded\r\n: x\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        f"GET / HTTP/1.1\r\n{_HOST}{_HOST}\r\n",
        f"GET /a b HTTP/1.1\r\n{_HOST}\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused(served: Gateway, head: str) -> None:
    async with connected(served) as socket:
        await socket.send(head)
        check_problem(await socket.all(), 400, "MalformedRequest")
    await check_alive(served)


async def test_a_wrong_chunk_ends_the_connection(served: Gateway) -> None:
    """Also after the response to the request has been sent."""
    head = f"POST /healthz HTTP/1.1\r\n{_HOST}Transfer-Encoding: chunked\r\n\r\n"
    async with connected(served) as socket:
        await socket.send(head)
        await socket.head()
        await socket.send("zz\r\nnot a chunk")
        await socket.all()
    await check_alive(served)


@pytest.mark.parametrize("parts", [1, 100])
async def test_a_head_that_is_too_long_is_refused(served: Gateway, parts: int) -> None:
    """Whether it comes in one part or in many, with one long header or with many."""
    line = "x" * (HEAD_BYTES // parts)
    lines = "".join(f"a{number}: {line}\r\n" for number in range(parts + 1))
    head = f"GET /healthz HTTP/1.1\r\n{_HOST}Connection: close\r\n{lines}\r\n"
    for size in (len(head), 1000):
        async with connected(served) as socket:
            for start in range(0, len(head), size):
                await socket.send(head[start : start + size])
            check_problem(await socket.all(), 431, "HeadTooLarge")


@pytest.mark.parametrize(
    "headers",
    ["Content-Length: 67108864\r\n", "Transfer-Encoding: chunked\r\n"],
    ids=["length", "chunks"],
)
async def test_a_body_of_64_megabytes_is_refused(
    served: Gateway, headers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its stated length at once, otherwise as soon as it is too long."""
    monkeypatch.setattr(middleware, "_BODY_SECONDS", 60.0)
    key = await served.key()
    path = "/v1/projects/docs/document?uri=a.md"
    head = f"PUT {path} HTTP/1.1\r\n{_HOST}Authorization: Bearer {key}\r\n{headers}\r\n"
    part = b"x" * 2**20
    if "chunked" in headers:
        part = f"{len(part):x}\r\n".encode() + part + b"\r\n"
    async with connected(served) as socket:
        await socket.send(head)
        sending = asyncio.create_task(_send_all(socket, part, 64))
        received = await socket.head()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
    assert received.startswith(b"HTTP/1.1 413 ")
    await check_alive(served)


async def _send_all(socket: Socket, part: bytes, count: int) -> None:
    for _ in range(count):
        await socket.send(part)


async def test_a_gzip_bomb_is_refused(served: Gateway) -> None:
    bomb = gzip.compress(b" " * 2**26)
    async with served.client() as client:
        for path, method in (("document?uri=a.md", "PUT"), ("changes", "POST"), ("./ask", "POST")):
            headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
            response = await client.request(method, path, content=bomb, headers=headers)
            assert (response.status_code, response.json()["code"]) == (413, "BodyTooLarge")


async def test_without_a_worker_a_question_ends_as_failed(served: Gateway) -> None:
    question = {"text": "herons", "timeout_ms": 1500}
    headers = {"Accept": "text/event-stream"}
    async with (
        served.client() as client,
        stream(client, "POST", "ask", json=question, headers=headers) as events,
    ):
        seen = [event async for event in events]
    *waiting, failed = seen
    assert {event.name for event in waiting} == {"query.waiting"}
    assert failed.name == "query.failed"
    assert (failed.data["code"], failed.data["status"]) == ("DeadlineExceeded", 504)


async def test_streams_are_limited_and_closed_ones_do_not_count(served: Gateway) -> None:
    async with served.client() as client:
        async with stream(client, "GET", "events"):
            response = await client.get("events")
            assert (response.status_code, response.json()["code"]) == (503, "Busy")
        await eventually(lambda: _opens(client), "the closed stream does not count")


async def _opens(client: httpx2.AsyncClient) -> bool:
    async with client.stream("GET", "events") as response:
        return response.status_code == 200


async def test_a_client_that_goes_away_leaves_no_defect(
    served: Gateway, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Half-closed and cut connections, in a head, in a body, and while a question waits."""
    key = await served.key()
    access = f"{_HOST}Authorization: Bearer {key}\r\n"
    path = "/v1/projects/docs"
    question = json.dumps({"text": "herons", "timeout_ms": 500})
    kind = "Content-Type: application/json\r\n"
    length = f"Content-Length: {len(question)}"
    for text in (
        "GET /hea",
        f"PUT {path}/document?uri=a.md HTTP/1.1\r\n{access}Content-Length: 10\r\n\r\npart",
        f"POST {path}/changes HTTP/1.1\r\n{access}{kind}Content-Length: 10\r\n\r\npart",
        f"POST {path}/ask HTTP/1.1\r\n{access}{kind}Content-Length: 99\r\n\r\n{{",
        f"POST /mcp HTTP/1.1\r\n{access}{kind}Content-Length: 99\r\n\r\n{{",
        f"POST {path}/ask HTTP/1.1\r\n{access}{kind}{length}\r\n\r\n{question}",
    ):
        async with connected(served) as socket:
            await socket.send(text)
            socket.end()
            assert await socket.all() == b""
    async with served.client() as client:
        response = await client.post("ask", json={"text": "herons", "timeout_ms": 100})
    assert response.status_code == 504
    assert response.json()["retryable"] is True
    printed = capsys.readouterr()
    assert "http.defect" not in printed.out + printed.err
    assert "Traceback" not in printed.out + printed.err + caplog.text
