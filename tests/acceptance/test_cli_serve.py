"""``headrace serve`` as a process: its address, its end, and what it loads."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from gateway.auth.callers import Right
from tests.support.cli import Cli, Command, environment_of
from tests.support.databases import Database
from tests.support.forking import ROOT
from tests.support.processes import WorkerProcess
from tests.support.waiting import eventually, within

_HEAVY = ("tokenizers", "tree_sitter", "numpy", "openvino", "litellm", "faust")
_LOADED = """
import sys
from gateway.main import application
import typer.main
typer.main.get_command(application(["{command}"]))
import {modules}
print(*[name for name in {heavy!r} if name in sys.modules])
"""
_STOP_SECONDS = 5


@pytest.fixture
def environment(redis_url: str, database: Database, tmp_path: Path) -> dict[str, str]:
    """Settings of a gateway."""
    return environment_of(redis_url, database, tmp_path / "home")


@pytest.fixture
async def key(environment: dict[str, str]) -> str:
    """An API key of the project docs."""
    rights = ",".join((Right.ASK, Right.READ, Right.PUBLISH))
    result = await Cli(environment)("api-keys", "add", "--project", "docs", "--may", rights)
    assert result.code == 0, result
    text = re.search(r"hr_[A-Za-z0-9]{8}_[A-Za-z0-9_-]{43}", result.stdout)
    assert text is not None, result
    return text[0]


@asynccontextmanager
async def serving(
    environment: dict[str, str], ready: Path, *options: str, port: int = 0
) -> AsyncIterator[tuple[Command, str]]:
    """A gateway in a process of its own, and its address; it is killed with the context."""
    arguments = ("serve", "--port", str(port), "--ready-file", str(ready), *options)
    command = await Command.start(*arguments, environment=environment)
    try:
        await eventually(
            lambda: (ready.exists() and ready.read_text()) or not command.is_running,
            "the gateway is ready",
            timeout=60,
        )
        assert command.is_running, command.printed()
        yield command, _text(ready)
    finally:
        command.send(signal.SIGKILL)
        await command.result(_STOP_SECONDS)
        _remove(ready)


def _text(path: Path) -> str:
    return path.read_text()


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def test_a_public_address_needs_tls(environment: dict[str, str]) -> None:
    refused = await Cli(environment)("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104
    assert "can be reached from other machines" in refused.line
    assert "--tls-cert" in refused.line
    half = await Cli(environment)("serve", "--tls-cert", "a.pem", "--port", "0")
    assert "go together" in half.line


async def test_a_port_in_use_is_one_line(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = await Cli(environment).typed("serve", "--port", port)
    assert f"can't listen on 127.0.0.1:{port}" in refused.line
    assert "--port" in refused.line


async def test_any_port_will_do_where_the_port_may_be_in_use(
    environment: dict[str, str], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with (
            serving(environment, tmp_path / "ready", "--any-port", port=port) as (_, url),
            httpx2.AsyncClient(base_url=url, timeout=60) as client,
        ):
            assert not url.endswith(f":{port}")
            assert (await client.get("/healthz")).json() == {"status": "ok"}


async def test_a_stop_ends_open_requests(
    environment: dict[str, str], key: str, tmp_path: Path
) -> None:
    """SIGTERM ends the process in 5 s; questions without an answer get a problem to repeat."""
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        serving(environment, tmp_path / "ready") as (command, url),
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client,
    ):
        path = "/v1/projects/docs/ask"
        question = {"text": "herons", "timeout_ms": 60_000}
        asked = [asyncio.create_task(client.post(path, json=question)) for _ in range(3)]
        metrics = httpx2.AsyncClient(base_url=url, timeout=60)

        async def waits() -> bool:
            scraped = (await metrics.get("/metrics")).text
            lines = [line for line in scraped.splitlines() if "http_in_flight" in line]
            return any(line.endswith((" 4", " 4.0")) for line in lines)

        await eventually(waits, "three questions are in flight")
        await metrics.aclose()
        command.send(signal.SIGTERM)
        async with within(_STOP_SECONDS):
            responses = await asyncio.gather(*asked)
            await eventually(lambda: not command.is_running, "the gateway has ended")
        log = command.printed()
    for response in responses:
        assert (response.status_code, response.json()["code"]) == (503, "WorkerEnding")
        assert response.json()["retryable"] is True
    assert "Traceback" not in log


async def test_another_gateway_goes_on_after_a_kill(
    environment: dict[str, str], key: str, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Questions of a killed gateway are asked again at the next one; MCP clients notice nothing."""
    headers = {"Authorization": f"Bearer {key}"}
    ask = "/v1/projects/docs/ask"
    async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
        async with serving(environment, tmp_path / "first") as (command, url):
            question = {"text": "herons", "timeout_ms": 60_000}
            asked = [asyncio.create_task(client.post(url + ask, json=question)) for _ in range(3)]
            put = await client.put(
                f"{url}/v1/projects/docs/document",
                params={"uri": "a.md"},
                content=b"Herons nest in March.",
                headers={"Idempotency-Key": "once"},
            )
            assert put.status_code == 202
            command.send(signal.SIGKILL)
            lost = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(error, httpx2.TransportError) for error in lost)
        async with (
            WorkerProcess(redis_url, database, environment),
            serving(environment, tmp_path / "second", port=port_of(url)) as (_, again),
        ):
            assert again == url
            repeated = await client.put(
                f"{url}/v1/projects/docs/document",
                params={"uri": "a.md"},
                content=b"Herons nest in March.",
                headers={"Idempotency-Key": "once"},
            )
            assert repeated.json() == {**put.json(), "duplicate": True}
            fields = {**question, "min_event": put.json()["token"], "mode": "keyword"}
            answer = await client.post(url + ask, json=fields)
            assert [r["citation"]["uri"] for r in answer.json()["results"]] == ["a.md"]


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_an_mcp_client_survives_a_restart(
    environment: dict[str, str], key: str, tmp_path: Path, era: str
) -> None:
    """The SDK's client calls before and after the gateway is killed and started again."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as http,
        serving_twice(environment, tmp_path) as (url, restart),
    ):
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=era) as client:
            for _ in range(2):
                names = {tool.name for tool in (await client.list_tools()).tools}
                assert "remember" in names
                shown = (await client.call_tool("list", {})).structured_content
                assert shown is not None
                await restart()


@asynccontextmanager
async def serving_twice(
    environment: dict[str, str], tmp_path: Path
) -> AsyncIterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """A gateway that can be killed and started again at its address."""
    async with AsyncExitStack() as stack:
        _, url = await stack.enter_async_context(serving(environment, tmp_path / "ready"))

        async def restart() -> None:
            await stack.pop_all().aclose()
            started = serving(environment, tmp_path / "ready", port=port_of(url))
            await stack.enter_async_context(started)

        yield url, restart


@pytest.mark.parametrize(
    ("command", "modules"), [("serve", "gateway.app"), ("mcp", "gateway.mcp.server")]
)
def test_a_gateway_needs_no_model(command: str, modules: str) -> None:
    program = _LOADED.format(command=command, modules=modules, heavy=_HEAVY)
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.split() == []
