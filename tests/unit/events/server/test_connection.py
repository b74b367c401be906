"""Redis connections that break, on both event loops; URLs, and the slots of commands."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from redis.asyncio.connection import SSLConnection

from events.server.cluster import ClusterClient
from events.server.connection import connect, redis_errors
from events.server.slots import Address, slot_of, slot_of_command
from runtime.errors import ConfigurationError, Unavailable


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


async def test_url_of_a_cluster() -> None:
    """The URL of a cluster names several nodes, and options of all connections."""
    url = "rediss+cluster://user:pass%2Fword@first:7001,[::1]:7002,third?ssl_cert_reqs=none"
    redis = connect(url)
    assert isinstance(redis, ClusterClient)
    pool: Any = redis.connection_pool
    options = pool.connection_kwargs
    assert (options["host"], options["port"]) == ("first", 7001)
    assert (options["username"], options["password"]) == ("user", "pass/word")
    assert issubclass(pool.connection_class, SSLConnection)
    assert redis.seeds == [Address("first", 7001), Address("::1", 7002), Address("third", 6379)]


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://",
        "redis+cluster://host/1",
        "redis+cluster://host:port",
        "redis+cluster://host,,other",
        "redis+cluster://user:secret/word@host",
        "other+cluster://host",
        "http://host",
    ],
)
def test_wrong_urls_are_refused(url: str) -> None:
    """A wrong URL is an error of the configuration that quotes no password."""
    with pytest.raises(ConfigurationError) as caught:
        connect(url)
    assert "secret" not in f"{caught.value}"


def test_slots() -> None:
    """The slot of a command is that of its first key; some commands run on any node."""
    assert slot_of("123456789") == 12739  # of the specification
    assert slot_of("a{tag}b") == slot_of(b"tag") == slot_of("{tag}")
    assert slot_of_command(["EVALSHA", "digest", 2, "{tag}a", "{tag}b", 1]) == slot_of("tag")
    read = ["XREADGROUP", b"GROUP", "g", "c", b"COUNT", 1, b"STREAMS", "{tag}s", ">"]
    assert slot_of_command(read) == slot_of("tag")
    assert slot_of_command(["SCAN", 0, b"MATCH", "p:{tag}:*", b"COUNT", 10]) == slot_of("tag")
    assert slot_of_command(["INFO", "memory"]) is None
    with pytest.raises(ConfigurationError, match="has no key"):
        slot_of_command(["RANDOMKEY"])
