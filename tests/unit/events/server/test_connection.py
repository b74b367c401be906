"""Redis connections that break, on both event loops; URLs, and the slots of commands."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from redis.asyncio import Redis
from redis.asyncio.connection import SSLConnection
from redis.exceptions import RedisError

from events.server import read_waits
from events.server.cluster import ClusterClient
from events.server.connection import connect, redis_errors
from events.server.read_waits import are_endable, end_reads
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


class Counting:
    """Server that answers every command by a number, so that reads look endable."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while command := await reader.read(4096):
            self.commands.append(command)
            writer.write(b":1\r\n")
        writer.close()

    @asynccontextmanager
    async def client(self) -> AsyncIterator[tuple[asyncio.Server, Redis]]:
        """Start the server and connect to it; one connection is in use, and one is not."""
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, connect(url, blocking=True, endable=True) as client:
            pool: Any = client.connection_pool
            _, free = await pool.get_connection(), await pool.get_connection()
            await pool.release(free)
            self.commands.clear()
            yield server, client


@pytest.mark.parametrize("is_macos", [False, True])
def test_a_gone_server_is_noticed_during_a_long_read(
    is_macos: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system gives up within 7 s, whether it waits for a reply or for an acknowledgement."""
    if is_macos:
        monkeypatch.delattr(socket, "TCP_KEEPIDLE")
        monkeypatch.delattr(socket, "TCP_USER_TIMEOUT")
        monkeypatch.setattr(socket, "TCP_KEEPALIVE", 16, raising=False)
    pool: Any = connect("redis://host", blocking=True, endable=True).connection_pool
    options = pool.connection_kwargs["socket_keepalive_options"]
    idle_s = options[16 if is_macos else socket.TCP_KEEPIDLE]
    assert idle_s + options[socket.TCP_KEEPINTVL] * options[socket.TCP_KEEPCNT] == 7
    assert is_macos or options[socket.TCP_USER_TIMEOUT] == 7_000


@pytest.mark.parametrize(
    ("query", "longest_s"),
    [
        ("", (5, 5.25, 17)),
        ("?socket_timeout=6", (5, 5.25, 6)),
        ("?socket_timeout=38", (10, 10.25, 22)),
    ],
)
async def test_a_short_read_of_a_hung_server_ends_early(
    query: str, longest_s: tuple[float, float, float]
) -> None:
    """Only a long read may take as long as the timeout of its socket, and a pipeline after any."""
    server = await asyncio.start_server(Counting().answer, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}{query}"
    async with server, connect(url, blocking=True, endable=True) as redis:
        pool: Any = redis.connection_pool
        connection = await pool.get_connection()
        timeouts = []
        for command in (
            ["PING"],
            ["XREADGROUP", b"BLOCK", "250"],
            ["XREADGROUP", b"BLOCK", "12000"],
        ):
            await connection.send_command(*command)
            timeouts.append(connection.socket_timeout)
            await connection.read_response()
            assert connection.socket_timeout == pool.connection_kwargs["socket_timeout"]
        await pool.release(connection)
    assert timeouts == pytest.approx(longest_s)


async def test_a_lost_node_holds_up_no_end_of_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reads at the other nodes end first, then the error is raised."""
    healthy = Counting()
    async with Counting().client() as (lost_server, lost), healthy.client() as (_, client):
        pool: Any = lost.connection_pool
        await pool._available_connections.pop().disconnect()
        lost_server.close()
        monkeypatch.setattr(read_waits, "open_nodes", lambda _: [lost, client])
        with pytest.raises(RedisError):
            await end_reads(client)
    assert [b"UNBLOCK" in command for command in healthy.commands] == [True]


async def test_connections_that_are_lost_say_nothing_about_ends_of_reads() -> None:
    """Only the connections that are open count, and the last id of a lost one is not used."""
    counting = Counting()
    async with counting.client() as (_, client):
        pool: Any = client.connection_pool
        pool._available_connections.append(pool.make_connection())  # it was never connected
        is_endable = are_endable(client)
        [busy] = pool._in_use_connections
        await busy.disconnect()
        await end_reads(client)
    assert is_endable
    assert not counting.commands


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
