"""Proxy of the fault tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from tests.support.proxy import Brake, Fault, Proxy, Way, running_proxy
from tests.support.waiting import eventually, within

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
SILENCE_SECONDS = 0.1


class Echo:
    """Server that echoes and records its input."""

    def __init__(self) -> None:
        self.heard = b""
        self.lost = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                self.heard += piece
                writer.write(piece)
        except ConnectionError:
            pass
        finally:
            self.lost += 1
            writer.close()


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with running_proxy(f"redis://user:word@127.0.0.1:{port}/3") as proxy:
        yield proxy
    server.close()


@pytest.fixture
async def ends(proxy: Proxy) -> AsyncIterator[Ends]:
    """Connection through the proxy that has carried data."""
    ends = await connected(proxy)
    assert await said(ends, b"hello") == b"hello"
    yield ends
    ends[1].transport.abort()


async def connected(proxy: Proxy) -> Ends:
    return await asyncio.open_connection("127.0.0.1", proxy.port)


async def said(ends: Ends, words: bytes) -> bytes:
    reader, writer = ends
    writer.write(words)
    return await reader.read(65536)


async def is_silent(ends: Ends, words: bytes = b"") -> bool:
    try:
        async with within(SILENCE_SECONDS):
            await said(ends, words)
    except TimeoutError:
        return True
    return False


async def test_a_url_keeps_all_but_its_address(proxy: Proxy) -> None:
    assert proxy.url == f"redis://user:word@127.0.0.1:{proxy.port}/3"
    assert proxy.through("unix://:word@/tmp/socket") == f"redis://:word@127.0.0.1:{proxy.port}/0"
    socket_url = "postgresql://worker@/docs?host=%2Ftmp"
    assert proxy.through(socket_url) == f"postgresql://worker@127.0.0.1:{proxy.port}/docs"


async def test_a_close_is_passed_on(proxy: Proxy, echo: Echo, ends: Ends) -> None:
    ends[1].close()
    await eventually(lambda: echo.lost == 1, "the server sees the end")


async def test_delay(proxy: Proxy, ends: Ends) -> None:
    proxy.delay(0.05)
    began = monotonic()
    assert await said(ends, b"late") == b"late"
    assert monotonic() - began >= 0.09  # a timer may be early by a millisecond


async def test_a_stall_keeps_what_was_sent(proxy: Proxy, echo: Echo, ends: Ends) -> None:
    proxy.stall()
    newer = await connected(proxy)
    assert await is_silent(ends, b"old")
    assert await is_silent(newer, b"new")
    assert echo.heard == b"hello"
    proxy.heal()
    assert await said(ends, b"") == b"old"
    assert await said(newer, b"") == b"new"
    newer[1].transport.abort()


async def test_a_black_hole_forgets_connections(proxy: Proxy, echo: Echo, ends: Ends) -> None:
    proxy.blackhole()
    newer = await connected(proxy)
    assert await is_silent(newer, b"new")
    proxy.heal()
    assert await is_silent(ends, b"old")
    assert await is_silent(newer, b"new")
    fresh = await connected(proxy)
    assert await said(fresh, b"fresh") == b"fresh"
    ends[1].close()
    fresh[1].close()
    newer[1].transport.abort()
    await eventually(lambda: echo.lost == 1, "the server sees one end, and not the forgotten one's")
    assert echo.heard == b"hellofresh"


async def test_a_reset_is_an_error_and_no_end(proxy: Proxy, ends: Ends) -> None:
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        await ends[0].read(1)


async def test_a_cut_to_the_server(proxy: Proxy, echo: Echo, ends: Ends) -> None:
    trap = proxy.trap(Way.TO_SERVER, b"mid", Fault.CUT)
    with pytest.raises(ConnectionResetError):
        await said(ends, b"amidst")
    await eventually(lambda: echo.lost == 1, "the server sees the end")
    assert (echo.heard, trap.struck) == (b"helloamid", 1)


async def test_a_cut_to_the_client(proxy: Proxy, echo: Echo, ends: Ends) -> None:
    trap = proxy.trap(Way.TO_CLIENT, b"mid", Fault.CUT)
    assert await said(ends, b"amidst") == b"amid"
    assert await ends[0].read(1) == b""
    assert (echo.heard, trap.struck) == (b"helloamidst", 1)


async def test_a_reset_on_sight(proxy: Proxy, echo: Echo, ends: Ends) -> None:
    proxy.trap(Way.TO_SERVER, b"mid", Fault.RESET)
    with pytest.raises(ConnectionResetError):
        await said(ends, b"amidst")
    assert echo.heard == b"hello"


@pytest.mark.parametrize("fault", [Fault.STALL, Fault.SWALLOW])
async def test_a_reply_that_stays_away(proxy: Proxy, echo: Echo, ends: Ends, fault: Fault) -> None:
    """A trap strikes once by default, and only a stalled reply arrives after healing."""
    proxy.trap(Way.TO_SERVER, b"mid", fault)
    assert await is_silent(ends, b"amidst")
    assert echo.heard == b"helloamidst"
    other = await connected(proxy)
    assert await said(other, b"amidst") == b"amidst"
    other[1].transport.abort()
    proxy.heal()
    if fault is Fault.STALL:
        assert await said(ends, b"") == b"amidst"
    else:
        assert await is_silent(ends, b"more")


@pytest.mark.parametrize(("pieces", "last"), [(1, b"end"), (9, b"next")])
async def test_a_brake(proxy: Proxy, echo: Echo, ends: Ends, pieces: int, last: bytes) -> None:
    """A brake cuts a piece of data, and the rest arrives after healing."""
    heard: list[bytes] = []
    proxy.brake(Brake(b"begin", last, pieces, 0.5, lambda: heard.append(echo.heard)))
    assert await said(ends, b"before") == b"before"
    assert await said(ends, b"begin") == b"begin"
    assert await said(ends, b"next") == b"ne"
    assert heard == [b"hellobeforebegin"]
    other = await connected(proxy)
    assert await said(other, b"begin") == b"begin"
    other[1].transport.abort()
    proxy.heal()
    assert await said(ends, b"") == b"xt"
    assert len(heard) == 1
