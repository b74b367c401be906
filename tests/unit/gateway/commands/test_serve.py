"""The server of ``headrace serve``: its idle loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from socket import create_server

import pytest
from starlette.types import Receive, Scope, Send

from gateway.commands import serve
from gateway.http.connections import server_config
from tests.support.waiting import eventually, within


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


async def test_it_ends_without_waiting_for_the_next_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a gateway interrupts the wait of its loop."""
    monkeypatch.setattr(serve, "_DATED_EVERY", timedelta(hours=1))
    async with within(5), _running() as server:
        await eventually(lambda: server.server_state.default_headers, "the loop waits")
        server.end()


async def test_responses_have_the_current_date(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop writes the date again and again."""
    monkeypatch.setattr(serve, "_DATED_EVERY", timedelta(milliseconds=5))
    async with within(5), _running() as server:
        for _ in range(2):
            server.server_state.default_headers = []
            await eventually(lambda: server.server_state.default_headers, "there is a date")
        server.end()
