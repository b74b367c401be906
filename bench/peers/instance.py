"""Running instance of a peer: its process, its Postgres and its directory."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE, Process
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

import asyncpg
import numpy as np
import numpy.typing as npt

from bench.peers.environments import Environment
from bench.peers.protocol import HASH
from bench.processes import cpu_s_below, memory_mb_below
from runtime.embedded import EmbeddedPostgres
from runtime.errors import HeadraceError, Unavailable

__all__ = ["FAILURES", "Cost", "Embed", "Instance", "Written", "instance_of"]

Embed = Callable[[Sequence[str], bool], Awaitable[npt.NDArray[np.float32]]]
"""Returns the vectors of texts by the real model; the flag is set for a question."""

FAILURES = (HeadraceError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError)
"""Errors of work with a peer."""

_PATIENCE = timedelta(minutes=30)
_STOP_SECONDS = 40.0
_LINE_LIMIT_BYTES = 2**30
_SAMPLE_SECONDS = 0.25
_QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "COCOINDEX_DISABLE_USAGE_TRACKING": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Variables that keep peers from reports of their use, downloads and warnings."""

_WRITTEN = """
    SELECT
        pg_current_wal_lsn() - '0/0' AS wal_bytes,
        (SELECT coalesce(sum(n_tup_ins + n_tup_upd), 0) FROM pg_stat_user_tables) AS rows
"""


@dataclass
class Cost:
    """Cost of a piece of work, over all processes of a peer; memory is in units of 1 MB."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    wal_bytes: int = 0
    embedded: int = 0
    peak_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Written:
    """Written by a Postgres so far: bytes of its log, and rows inserted or updated."""

    wal_bytes: int
    rows: int


@dataclass
class Instance:
    """A peer at work in ``home``. ``embedded`` is the number of chunks given to its model."""

    environment: Environment
    home: Path
    embed: Embed | None = None
    postgres: EmbeddedPostgres | None = None
    modes: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    embedded: int = 0
    _url: str | None = None
    _chunks: str = ""
    _process: Process | None = None
    _database: asyncpg.Connection | None = None

    async def start(self, model: str = HASH, delay_s: float = 0.0) -> None:
        """Start the process and open the index; an index that exists is opened again.

        Raises:
            Unavailable: the peer can't be opened; the message has its reason.
        """
        with (self.home / "adapter.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.environment.command,
                cwd=self.home,
                env=self._variables(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                limit=_LINE_LIMIT_BYTES,
            )
        own_url = None if self.postgres is None else self.postgres.urls().owner
        self.embedded = 0
        opened = await self.call(
            "open", home=str(self.home), url=own_url, model=model, delay_s=delay_s
        )
        self._url, self._chunks = opened["url"], opened["chunks"]
        self.modes, self.versions = opened["modes"], opened["versions"]
        self._database = await asyncpg.connect(self._url)

    async def call(self, do: str, **arguments: Any) -> Any:
        """Send a request, and await its result; the peer's texts are embedded on the way.

        Raises:
            Unavailable: the request failed, took too long, or the process has ended.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        self._send({"do": do, **arguments})
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                while line := await self._process.stdout.readline():
                    message = json.loads(line)
                    if "embed" not in message:
                        return self._result(do, message)
                    await self._serve_vectors(message)
        except TimeoutError:
            raise Unavailable(f"{do} took more than {_PATIENCE}") from None
        raise Unavailable(f"{do}: the process ended: {self._last_line()}")

    async def stored(self) -> list[tuple[str, str]]:
        """Return uri and text of every stored chunk."""
        rows = await self._connection().fetch(self._chunks)
        return [(row[0], row[1]) for row in rows]

    async def count(self) -> int:
        """Return the number of stored chunks; 0 before there is a table for them."""
        try:
            query = f"SELECT count(*) FROM ({self._chunks}) AS stored"  # noqa: S608  # own query
            return int(await self._connection().fetchval(query))
        except asyncpg.UndefinedTableError:
            return 0

    async def written(self) -> Written:
        """Return the amounts that the Postgres has written so far."""
        row = await self._connection().fetchrow(_WRITTEN)
        return Written(int(row["wal_bytes"]), int(row["rows"]))

    def cpu_s(self) -> float:
        """Return the processor seconds of all processes so far."""
        return sum(sum(cpu_s_below(pid).values()) for pid in self._pids())

    @asynccontextmanager
    async def cost(self, *, memory: bool = False) -> AsyncIterator[Cost]:
        """Measure what the context costs; the result is complete after it.

        Memory is measured on request only, because that slows the processes.
        """
        cost, embedded = Cost(), self.embedded
        before = await self.written()
        sampling = asyncio.create_task(self._sample(cost)) if memory else None
        cpu_s, began = self.cpu_s(), perf_counter()
        try:
            yield cost
        finally:
            if sampling is not None:
                sampling.cancel()
        cost.wall_s = perf_counter() - began
        cost.cpu_s = self.cpu_s() - cpu_s
        cost.wal_bytes = (await self.written()).wal_bytes - before.wal_bytes
        cost.embedded = self.embedded - embedded

    async def victims(self) -> list[int]:
        """Return the ids of the processes that index."""
        victims: list[int] = await self.call("victims")
        return victims

    async def restart_if_in(self, killed: Sequence[int]) -> None:
        """Start the process of the peer again if it is one of those that were killed."""
        assert self._process is not None
        if self._process.pid in killed:
            await self._process.wait()
            await self._disconnect()
            await self.start()

    async def close(self) -> None:
        """Close the peer; a process that does not end in time is killed."""
        await self._disconnect()
        if self._process is None or self._process.returncode is not None:
            return
        with suppress(HeadraceError, TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self.call("close")
                await self._process.wait()
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def _sample(self, cost: Cost) -> None:
        while True:
            memory_mb = sum(memory_mb_below(pid) for pid in self._pids())
            cost.peak_mb = max(cost.peak_mb, memory_mb)
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _pids(self) -> list[int]:
        assert self._process is not None
        servers = [] if self.postgres is None else [self.postgres.pid]
        return [self._process.pid, *servers]

    def _variables(self) -> dict[str, str]:
        """Environment without settings of Headrace, in which the process finds the adapters."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")
        }
        return {**inherited, **_QUIET, **self.environment.variables(self.home)}

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def _result(self, do: str, message: Mapping[str, Any]) -> Any:
        if "error" in message:
            raise Unavailable(f"{do}: {message['error']}")
        self.embedded = message["embedded"]
        return message["result"]

    async def _serve_vectors(self, message: Mapping[str, Any]) -> None:
        assert self.embed is not None
        vectors = await self.embed(message["embed"], message["question"])
        self._send({"vectors": b64encode(vectors.astype(np.float32).tobytes()).decode()})

    def _connection(self) -> asyncpg.Connection:
        assert self._database is not None
        return self._database

    async def _disconnect(self) -> None:
        if self._database is not None:
            await self._database.close()
        self._database = None

    def _last_line(self) -> str:
        lines = (self.home / "adapter.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no output"


@asynccontextmanager
async def instance_of(
    environment: Environment,
    home: Path,
    *,
    embed: Embed | None = None,
    model: str = HASH,
    delay_s: float = 0.0,
) -> AsyncIterator[Instance]:
    """Run an empty instance of a peer, with a Postgres if it needs one.

    Raises:
        Unavailable: the peer can't be opened.
        ConfigurationError: Postgres can't be started.
    """
    home.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # one system call, once
    instance = Instance(environment, home, embed)
    try:
        if environment.needs_postgres:
            instance.postgres = EmbeddedPostgres(home)
            await _add_vectors((await instance.postgres.start()).owner)
        await instance.start(model, delay_s)
        yield instance
    finally:
        await instance.close()
        if instance.postgres is not None:
            await instance.postgres.stop()


async def _add_vectors(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    finally:
        await connection.close()
