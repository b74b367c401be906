"""TCP proxy with scripted network faults, for Redis, Postgres or another server.

Faults of the whole network: ``delay``, ``stall`` (a partition that TCP survives: data arrives after
``heal``), ``blackhole`` (a firewall that drops its state: connections stay dead after ``heal``),
``reset``. ``trap`` waits for some bytes, and fails their connection; ``brake`` waits for them and
stops the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

__all__ = ["Brake", "Fault", "Proxy", "Trap", "Way", "running_proxy"]

_READ_BYTES = 64 * 2**10
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_POSTGRES_PORT = 5432


class Way(Enum):
    """Direction of bytes."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


_BACK = {Way.TO_SERVER: Way.TO_CLIENT, Way.TO_CLIENT: Way.TO_SERVER}


class Fault(Enum):
    """Fault of a connection that a trap catches."""

    CUT = "reset in the middle of a message: nothing behind the trap's bytes arrives"
    RESET = "reset before any of them arrives"
    STALL = "they arrive, and nothing of the reply until the network is healed"
    SWALLOW = "they arrive, and no reply ever"


@dataclass
class Trap:
    """Trap for a ``pattern`` within one piece; ``struck`` counts the catches."""

    way: Way
    pattern: bytes
    fault: Fault
    times: int = 1
    struck: int = 0

    @property
    def is_set(self) -> bool:
        """True while the trap can strike."""
        return self.struck < self.times


@dataclass
class Brake:
    """Brake that calls ``pull`` when a connection is about to carry a piece to the server.

    The piece is the one ``pieces`` after the one with ``pattern``, or an earlier one with ``last``.
    A ``share`` of it, from 0 to 1, arrives at once and the rest after ``heal``, as if the client
    had stopped while writing.
    """

    pattern: bytes
    last: bytes
    pieces: int
    share: float
    pull: Callable[[], None]
    is_pulled: bool = False
    link: _Link | None = None
    """Connection that carried the pattern."""

    def meets(self, link: _Link, piece: bytes) -> bool:
        """Count a piece; true if it is the one to brake."""
        if self.link is None and self.pattern in piece:
            self.link = link
        if self.is_pulled or self.link is not link:
            return False
        self.is_pulled = self.pieces == 0 or self.last in piece
        self.pieces -= 1
        return self.is_pulled


@dataclass(eq=False)
class _Link:
    """Client's connection with the one to the server; ``silent`` directions drop all data."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    flowing: dict[Way, asyncio.Event] = field(
        default_factory=lambda: {way: asyncio.Event() for way in Way}
    )
    silent: set[Way] = field(default_factory=set)

    def target(self, way: Way) -> asyncio.StreamWriter:
        return self.server if way is Way.TO_SERVER else self.client

    def reset(self) -> None:
        for writer in (self.client, self.server):
            _reset(writer)


class Proxy:
    """Proxy of the server at ``upstream_url``; ``accepted`` counts its connections."""

    def __init__(self, upstream_url: str) -> None:
        self.port = 0
        self.accepted = 0
        self._upstream_url = upstream_url
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._traps: list[Trap] = []
        self._brake: Brake | None = None
        self._delay_seconds = 0.0
        self._stalled: set[Way] = set()
        self._is_black = False

    @property
    def url(self) -> str:
        """URL of the server through the proxy."""
        return self.through(self._upstream_url)

    def through(self, url: str) -> str:
        """URL of the same server (for another user or database) through the proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        scheme = "redis" if parts.scheme == "unix" else parts.scheme
        path = "/0" if parts.scheme == "unix" else parts.path
        netloc = f"{user}{at}127.0.0.1:{self.port}"
        return parts._replace(scheme=scheme, netloc=netloc, path=path, query="").geturl()

    def delay(self, seconds: float) -> None:
        """Delay each piece of at most 64 KiB by ``seconds``, in both directions."""
        self._delay_seconds = seconds

    def stall(self, *ways: Way) -> None:
        """Hold back data until ``heal``, in both directions unless some are given."""
        self._stalled |= set(ways or Way)
        for link in self._links:
            self._regulate(link)

    def blackhole(self) -> None:
        """Drop all data; current connections stay silent after ``heal``."""
        self._is_black = True
        for link in self._links:
            link.silent |= set(Way)

    def reset(self) -> None:
        """Reset every connection."""
        for link in self._links:
            link.reset()

    def trap(self, way: Way, pattern: bytes, fault: Fault, times: int = 1) -> Trap:
        """Fail the next ``times`` connections that carry the pattern in a direction."""
        trap = Trap(way, pattern, fault, times)
        self._traps.append(trap)
        return trap

    def brake(self, brake: Brake) -> None:
        """Stop the client in the middle of an exchange."""
        self._brake = brake

    def heal(self) -> None:
        """End delay, stalls, the black hole, all traps and the brake."""
        self._delay_seconds = 0.0
        self._stalled.clear()
        self._is_black = False
        self._traps.clear()
        self._brake = None
        for link in self._links:
            self._regulate(link)

    def _regulate(self, link: _Link) -> None:
        for way, flowing in link.flowing.items():
            if way in self._stalled:
                flowing.clear()
            else:
                flowing.set()

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Accept a connection and carry it in a task."""
        self.accepted += 1
        task = asyncio.create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                upstream, server = await _connect(self._upstream_url)
                await self._link(reader, writer, upstream, server)
        finally:
            _reset(writer)

    async def _link(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream: asyncio.StreamReader,
        server: asyncio.StreamWriter,
    ) -> None:
        link = _Link(writer, server, silent=set(Way) if self._is_black else set())
        self._regulate(link)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(link, Way.TO_SERVER, reader))
                pumps.create_task(self._pump(link, Way.TO_CLIENT, upstream))
        finally:
            self._links.discard(link)
            link.reset()

    async def _pump(self, link: _Link, way: Way, source: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(_READ_BYTES):
                await asyncio.sleep(self._delay_seconds)
                await link.flowing[way].wait()
                if way is Way.TO_SERVER:
                    piece = await self._braked(link, piece)
                if way not in link.silent:
                    await self._pass_on(link, way, piece)
        await link.flowing[way].wait()
        if way not in link.silent:
            await _end(link.target(way))

    async def _braked(self, link: _Link, piece: bytes) -> bytes:
        """Part of the piece that is still to be sent."""
        brake = self._brake
        if brake is None or not brake.meets(link, piece):
            return piece
        brake.pull()
        arrives = round(len(piece) * brake.share)
        link.server.write(piece[:arrives])
        await link.server.drain()
        link.flowing[Way.TO_SERVER].clear()
        await link.flowing[Way.TO_SERVER].wait()
        return piece[arrives:]

    async def _pass_on(self, link: _Link, way: Way, piece: bytes) -> None:
        trap = self._sprung(way, piece)
        fault = None if trap is None else trap.fault
        if fault is Fault.RESET:
            link.reset()
            return
        if trap is not None and fault is Fault.CUT:
            piece = piece[: piece.index(trap.pattern) + len(trap.pattern)]
        elif fault is Fault.STALL:
            link.flowing[_BACK[way]].clear()
        elif fault is Fault.SWALLOW:
            link.silent.add(_BACK[way])
        target = link.target(way)
        target.write(piece)
        await target.drain()
        if fault is Fault.CUT:
            link.silent |= set(Way)
            await _end(target)
            link.reset()

    def _sprung(self, way: Way, piece: bytes) -> Trap | None:
        for trap in self._traps:
            if trap.is_set and trap.way is way and trap.pattern in piece:
                trap.struck += 1
                return trap
        return None


@asynccontextmanager
async def running_proxy(upstream_url: str) -> AsyncIterator[Proxy]:
    """Proxy on a free port of the loopback; its connections end with the context."""
    proxy = Proxy(upstream_url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return await asyncio.open_unix_connection(parts.path)
    directory = parse_qs(parts.query).get("host", [""])[0]
    if directory.startswith("/"):
        return await asyncio.open_unix_connection(
            Path(directory) / f".s.PGSQL.{parts.port or _POSTGRES_PORT}"
        )
    assert parts.port is not None, url
    return await asyncio.open_connection(parts.hostname, parts.port)


async def _end(writer: asyncio.StreamWriter) -> None:
    """Close with FIN, after all written data."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN, if it is TCP."""
    end: socket.socket | None = writer.get_extra_info("socket")
    if end is not None and end.family == socket.AF_INET and not writer.is_closing():
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
