"""Parser processes from the fork server, for tests of other things."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from bench.content import parsers
from processors.chunking.sandbox import parser, pool
from processors.chunking.sandbox.parser import Parser, ParserSettings
from processors.chunking.sandbox.pool import ChunkingPool
from processors.wiring import foundation
from tests.support.forking import Forked, fork, fork_server
from tests.support.orders import EXTRACTORS, PARSER, PARSERS, WITH_FORMATS, Order

__all__ = ["ForkedPool", "parsers_are_forked"]

_ROOM_BYTES = 2**29
"""More than a forked parser begins with."""


class ForkedPool(ChunkingPool):
    """Pool whose parsers are forked, which takes a tenth of a start.

    A parser with a low memory limit is started instead.

    Args:
        server: socket of the fork server; None for that of this run.
        arguments, options: those of ``ChunkingPool``.
    """

    def __init__(self, *arguments: Any, server: Path | None = None, **options: Any) -> None:
        with patch.object(pool, "Parser", partial(_ForkedParser, server)):
            super().__init__(*arguments, **options)


@contextmanager
def parsers_are_forked(server: Path | None = None, **options: Any) -> Iterator[None]:
    """Fork the parsers of this process's workers, replays and measurements of content.

    ``server``: socket of the fork server; None for that of this run. ``options`` of the pool.
    """
    forked = partial(ForkedPool, server=server, **options)
    with (
        patch.object(foundation, "ChunkingPool", forked),
        patch.object(parsers, "ChunkingPool", forked),
    ):
        yield


class _ForkedParser(Parser):
    def __init__(self, server: Path | None, settings: ParserSettings) -> None:
        super().__init__(settings)
        self._server = server

    async def _spawn(self) -> Process:
        settings = self._settings
        if settings.memory_bytes < _ROOM_BYTES:
            return await super()._spawn()
        server = self._server
        if server is None:
            server = await asyncio.to_thread(fork_server)
        # it has the methods that are used
        return cast("Process", await _ForkedProcess.start(server, settings.argument()))


class _ForkedProcess:
    """Part of ``asyncio.subprocess.Process`` that the owner of a parser uses."""

    def __init__(
        self,
        process: Forked,
        stdin: asyncio.WriteTransport,
        stdout: asyncio.StreamReader,
        reading: asyncio.ReadTransport,
    ) -> None:
        self._process = process
        self._reading = reading
        self.stdin = stdin
        self.stdout = stdout

    @classmethod
    async def start(cls, server: Path, argument: str) -> _ForkedProcess:
        """Fork a parser, connected by pipes."""
        requests, answers = os.pipe(), os.pipe()
        null = os.open(os.devnull, os.O_WRONLY)
        streams = (requests[0], answers[1], null)
        order = Order([argument], parser._environment(), program=PARSER)
        name = EXTRACTORS if WITH_FORMATS in os.environ else PARSERS
        process = await asyncio.to_thread(fork, server.with_name(name), order, streams)
        for stream in streams:
            os.close(stream)
        loop = asyncio.get_running_loop()
        stdout = asyncio.StreamReader(limit=parser._BUFFER_BYTES)
        reading, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stdout), os.fdopen(answers[0], "rb", 0)
        )
        stdin, _ = await loop.connect_write_pipe(
            asyncio.BaseProtocol, os.fdopen(requests[1], "wb", 0)
        )
        return cls(process, stdin, stdout, reading)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit code; None while the process runs."""
        return self._process.exit_code

    def kill(self) -> None:
        """Kill the process."""
        self._process.send(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        return await self._process.wait()

    async def communicate(self) -> None:
        """Wait for the end, and close the pipe."""
        await self.wait()
        self._reading.close()
