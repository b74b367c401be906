"""The server of ``headrace serve``: its idle loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email.utils import formatdate
from socket import create_server

import pytest
from starlette.types import Receive, Scope, Send

from gateway.commands import serve
from gateway.http.connections import server_config
from tests.support.waiting import within


async def _silent(scope: Scope, receive: Receive, send: Send) -> None:
    """Application that no test sends a request to."""


@asynccontextmanager
async def _running() -> AsyncIterator[serve._Server]:
    """Serve until the context ends."""
    ready = asyncio.Event()
    server = serve._Server(server_config(_silent, lifespan="off"), ready.set)
    with create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await ready.wait()
            yield server
            await serving
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


async def test_it_ends_without_a_request() -> None:
    """The end of a gateway interrupts the wait of its loop."""
    async with within(5), _running() as server:
        server.end()


async def test_responses_have_the_current_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each response gets the date at which its headers are read."""
    async with within(5), _running() as server:
        for seconds in (1_000_000_000, 1_000_000_001):
            monkeypatch.setattr("email.utils.time.time", lambda now=seconds: now)
            dates = [
                value for name, value in server.server_state.default_headers if name == b"date"
            ]
            assert dates == [formatdate(seconds, usegmt=True).encode()]
        server.end()
