"""Broken Redis connections on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from events.server.connection import connect, redis_errors
from runtime.errors import Unavailable


async def answer_pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(4096):
        writer.write(b"+PONG\r\n")
    writer.close()


async def write_to_a_broken_connection() -> None:
    server = await asyncio.start_server(answer_pings, "127.0.0.1", 0)
    redis = connect(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    pool: Any = redis.connection_pool
    connection = await pool.get_connection()
    await connection.send_command("PING")
    assert await connection.read_response() == b"PONG"
    connection._writer.transport.abort()
    try:
        with redis_errors():
            await connection.send_command("PING")
            await connection.read_response()
    finally:
        await pool.release(connection)
        await redis.aclose()
        server.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_write_to_a_broken_connection_is_an_outage(run: Any) -> None:
    """A write to a broken connection raises Unavailable, even before the reader notices."""
    broken: Coroutine[Any, Any, None] = write_to_a_broken_connection()
    with pytest.raises(Unavailable):
        run(broken)
