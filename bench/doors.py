"""Latency that HTTP, MCP and the pages add to a question, and many askers at once.

The ways to ask take turns with new questions each, so that their ratios hold on other machines.
The client of HTTP parses in C, because one in pure Python needs as much time as the gateway.
``bare`` is a server of one route over the same client: the floor of ``http``.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import cycle
from time import perf_counter

import aiohttp
import httpx2
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from bench.bare_gateway import bare_gateway
from bench.corpus import questions
from bench.documents import fill
from bench.figures import Ask, Report, in_turn, percentile
from bench.stack import Stack, bench_stack, free_port
from events.client.client import Client
from processors.wiring.services import open_services
from runtime.errors import ConfigurationError
from runtime.worker_process import ServiceProcess
from store.generations.catalog import Projects
from store.keys.api_keys import ApiKey, ApiKeyRegister, NewApiKey
from store.postgres.pool import Database
from store.postgres.roles import OPERATOR

__all__ = ["measure"]

PROJECT = "stdlib"
CHUNKS = 50_000
SECONDS = 60.0
ASKERS = 200
PAUSE_SECONDS = 10.0
QUESTIONS = 200
POOL = 10_000
WARM_UP = 20
STARTS = 5
_REQUEST_SECONDS = 60
_STOP = timedelta(seconds=20)
_NO_LIMIT = 0
_RIGHTS = frozenset({"ask", "read"})
_COOKIE = "__Host-headrace"
_FILE = re.compile(r'(?:src|href)="(/static/[^"]+)"')


@dataclass
class _Load:
    """Milliseconds of the questions that were answered, and the number of the others."""

    milliseconds: list[float] = field(default_factory=list)
    failures: int = 0


async def measure(chunks: int = CHUNKS, seconds: float = SECONDS) -> Report:
    """Fill an index, ask in every way, then by many askers; report milliseconds and ratios.

    ``seconds`` is the duration of each load: ``load``, in which every asker pauses after a question
    as the user of an answer does, and ``full_load``, in which none does.

    Raises:
        ConfigurationError: the load had fewer than two answers.
    """
    texts = cycle(questions(POOL))
    async with AsyncExitStack() as exits:
        stack = await exits.enter_async_context(bench_stack())
        written = await _fill(stack, chunks)
        await exits.enter_async_context(stack.worker("--only", "answerer"))
        client = await exits.enter_async_context(Client.connect(stack.redis_url))
        bare = await exits.enter_async_context(bare_gateway(free_port(), stack.redis_url))
        address = await exits.enter_async_context(_gateway(stack))
        key, *askers = await _api_keys(stack, 1 + ASKERS)
        http = await exits.enter_async_context(_http(key))
        session = await exits.enter_async_context(_client_session(key))
        page = _page(http, address, await _session(http, address, key))
        ways: Mapping[str, Ask] = {
            "stream": _by_stream(client),
            "bare": _by_post(session, bare, project=PROJECT),
            "http": _by_post(session, f"{address}/v1/projects/{PROJECT}/ask"),
            "mcp_http": await _by_mcp(exits, http, address),
            "page": page,
        }
        await in_turn([*ways.values()], texts, WARM_UP)
        times = await in_turn([*ways.values()], texts, QUESTIONS)
        p50_ms = {name: statistics.median(of) for name, of in zip(ways, times, strict=True)}
        transferred = await _transferred_bytes(http, address, page, next(texts))
        url = f"{address}/v1/projects/{PROJECT}/ask"
        load = await _load(url, askers, texts, seconds, min(PAUSE_SECONDS, seconds))
        full_load = await _load(url, askers, texts, seconds, 0)
        starts = await _starts(stack, STARTS)
    for measured in (load, full_load):
        if len(measured.milliseconds) < 2:
            raise ConfigurationError(
                f"{measured.failures} questions failed, and fewer than two were answered",
                "measure longer, or on a machine that does nothing else",
            )
    return Report(
        "doors",
        _ratios(p50_ms)
        | {"page_bytes": transferred}
        | {"askers": ASKERS}
        | _load_figures("load", load, seconds)
        | _load_figures("full_load", full_load, seconds)
        | starts
        | {"chunks": written},
    )


def _ratios(p50_ms: Mapping[str, float]) -> dict[str, float]:
    figures = {
        f"{name}_ratio": round(value / p50_ms["stream"], 3)
        for name, value in p50_ms.items()
        if name != "stream"
    }
    figures["http_bare_ratio"] = round(p50_ms["http"] / p50_ms["bare"], 3)
    return figures | {f"{name}_p50_ms": round(value, 2) for name, value in p50_ms.items()}


def _load_figures(name: str, load: _Load, seconds: float) -> dict[str, float]:
    return {
        f"{name}_answers": len(load.milliseconds),
        f"{name}_failures": load.failures,
        f"{name}_per_s": round(len(load.milliseconds) / seconds, 1),
        f"{name}_p50_ms": round(statistics.median(load.milliseconds), 1),
        f"{name}_p99_ms": round(percentile(load.milliseconds, 99), 1),
    }


async def _fill(stack: Stack, chunks: int) -> int:
    """Fill the index in services that end before anything is measured."""
    async with open_services(stack.settings(), ["answerer"]) as services:
        written = await fill(services, PROJECT, chunks)
        await services.maintenance.run_once()
    return written


@asynccontextmanager
async def _gateway(stack: Stack) -> AsyncIterator[str]:
    """Run ``headrace serve`` for the duration of the context; returns its address."""
    port = free_port()
    process = ServiceProcess(
        ["serve", "--port", str(port)],
        environment=stack.environment(),
        stop_timeout=_STOP,
        name="the gateway",
    )
    try:
        await process.start()
        yield f"http://127.0.0.1:{port}"
    finally:
        await process.stop()


async def _api_keys(stack: Stack, count: int) -> list[str]:
    """Add API keys without limits of rate."""
    keys = [ApiKey.new() for _ in range(count)]
    new = NewApiKey(PROJECT, _RIGHTS, requests_per_minute=_NO_LIMIT, bytes_per_minute=_NO_LIMIT)
    database = await Database.open(stack.database_url, role=OPERATOR, max_size=1)
    try:
        register = ApiKeyRegister(database, Projects(database))
        for key in keys:
            await register.add(key, new)
    finally:
        await database.close()
    return [key.text for key in keys]


def _http(key: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        headers={"Authorization": f"Bearer {key}"},
        timeout=_REQUEST_SECONDS,
    )


def _by_stream(client: Client) -> Ask:
    async def ask(text: str) -> object:
        return await client.ask(PROJECT, text)

    return ask


def _client_session(key: str) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        headers={"Authorization": f"Bearer {key}"},
        timeout=aiohttp.ClientTimeout(_REQUEST_SECONDS),
        raise_for_status=True,
    )


def _by_post(session: aiohttp.ClientSession, url: str, **fields: str) -> Ask:
    async def ask(text: str) -> object:
        async with session.post(url, json={"text": text, **fields}) as response:
            return await response.json()

    return ask


async def _by_mcp(exits: AsyncExitStack, http: httpx2.AsyncClient, address: str) -> Ask:
    transport = streamable_http_client(f"{address}/mcp", http_client=http)
    client = await exits.enter_async_context(McpClient(transport))

    async def ask(text: str) -> object:
        result = await client.call_tool("search", {"query": text})
        if result.is_error:
            raise ConfigurationError(f"the tool failed: {result.content}")
        return result

    return ask


async def _session(http: httpx2.AsyncClient, address: str, key: str) -> str:
    """Log in to the pages; returns the cookie, which a client without TLS does not send itself."""
    response = await http.post(
        f"{address}/login", data={"api_key": key}, headers={"Sec-Fetch-Site": "same-origin"}
    )
    cookie = response.headers.get("set-cookie", "").partition(";")[0]
    if not cookie.startswith(_COOKIE):
        raise ConfigurationError(f"the login failed with status {response.status_code}")
    return str(cookie)


def _page(http: httpx2.AsyncClient, address: str, cookie: str) -> Ask:
    async def ask(text: str) -> httpx2.Response:
        response = await http.get(
            f"{address}/ask", params={"project": PROJECT, "q": text}, headers={"Cookie": cookie}
        )
        return response.raise_for_status()

    return ask


async def _transferred_bytes(http: httpx2.AsyncClient, address: str, page: Ask, text: str) -> int:
    """Bytes of the bodies that a browser without a cache receives for the page of an answer."""
    response = await page(text)
    assert isinstance(response, httpx2.Response)
    files = [await http.get(f"{address}{path}") for path in sorted({*_FILE.findall(response.text)})]
    return sum(reply.raise_for_status().num_bytes_downloaded for reply in (response, *files))


async def _load(
    url: str, keys: Sequence[str], texts: Iterator[str], seconds: float, pause: float
) -> _Load:
    """Let a program for each key ask until ``seconds`` are over, and at least once.

    A program asks one question after the other, and no sooner than ``pause`` seconds after its
    previous question. The first questions are spread over a pause.
    """
    load = _Load()

    async def run(ask: Ask, due: float) -> None:
        while True:
            await asyncio.sleep(max(0.0, due - perf_counter()))
            started = perf_counter()
            try:
                await ask(next(texts))
            except (aiohttp.ClientError, TimeoutError, ValueError):
                load.failures += 1
            else:
                load.milliseconds.append((perf_counter() - started) * 1000)
            due = started + pause
            if max(due, perf_counter()) >= end:
                return

    async with AsyncExitStack() as exits:
        asks = [
            _by_post(await exits.enter_async_context(_client_session(key)), url) for key in keys
        ]
        start = perf_counter()
        end = start + seconds
        await asyncio.gather(
            *(run(ask, start + pause * number / len(asks)) for number, ask in enumerate(asks))
        )
    return load


async def _starts(stack: Stack, count: int) -> dict[str, float]:
    """Time from the start of ``headrace mcp`` to its tools, in turn with the SDK's import alone."""
    served, imported = [], []
    for _ in range(count):
        imported.append(await _import_ms())
        served.append(await _tools_ms(stack))
    return {
        "mcp_start_ms": round(statistics.median(served)),
        "mcp_start_ratio": round(statistics.median(served) / statistics.median(imported), 2),
    }


async def _import_ms() -> float:
    started = perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import mcp.server")
    await process.wait()
    return (perf_counter() - started) * 1000


async def _tools_ms(stack: Stack) -> float:
    arguments: Sequence[str] = ("-P", "-m", "gateway.main", "mcp", "--project", PROJECT)
    server = StdioServerParameters(
        command=sys.executable, args=[*arguments], env={**os.environ, **stack.environment()}
    )
    started = perf_counter()
    async with McpClient(server) as client:
        await client.list_tools()
        return (perf_counter() - started) * 1000
