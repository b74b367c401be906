"""``headrace mcp`` as hosts start it: a process that speaks MCP over stdin and stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import TextContent

from gateway.mcp import results
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.forking import ROOT
from tests.support.running import headrace
from tests.support.waiting import eventually

HEAVY = ("events", "tokenizers", "tree_sitter", "numpy", "openvino", "litellm", "faust", "redis")
"""Modules that `tools/list` must not wait for."""
LOADED = """
import asyncio, sys
from gateway.main import application
import typer.main
typer.main.get_command(application(["mcp"]))
from gateway.mcp import opener, server, tools
tools.definitions(with_project=True, with_changes=True)
print(*[name for name in {heavy!r} if name in sys.modules])
"""


def started(environment: dict[str, str], *options: str) -> StdioServerParameters:
    """Command of the server, in a process of its own."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "gateway.main", "mcp", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Result of a tool, checked to be the same in both parts."""
    result = await client.call_tool(tool, arguments)
    shown = result.structured_content
    assert isinstance(shown, dict)
    [content] = result.content
    assert isinstance(content, TextContent)
    assert content.text == results.render(shown)
    return shown


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_note_is_remembered_found_opened_and_forgotten(
    redis_url: str, database: Database, tmp_path: Path, era: str
) -> None:
    """Every tool works on a real deployment; the citation opens the exact lines."""
    environment = environment_of(redis_url, database, tmp_path)
    async with (
        headrace(redis_url, database),
        Client(started(environment, "--project", "notes"), mode=era) as client,
    ):
        text = "# Birds\n\nHerons nest in March.\n\nSwans nest in April."
        change = await call(client, "remember", uri="birds.md", content=text)
        assert change["state"] == "indexed"
        answer = await call(
            client, "search", query="when do herons nest?", min_event=change["token"]
        )
        passage = answer["results"][0]
        uri, _, lines = passage["where"].rpartition(":")
        first, _, last = lines.partition("-")
        opened = await call(client, "read", uri=uri, start_line=int(first), end_line=int(last))
        assert opened["content"] == passage["content"]
        listed = await call(client, "list", under="birds")
        assert [row["uri"] for row in listed["documents"]] == ["birds.md"]
        assert (await call(client, "status"))["documents"] == 1
        assert (await call(client, "forget", uri="birds.md"))["state"] == "indexed"
        assert (await call(client, "read", uri="birds.md"))["error"]["code"] == "NotFound"
        empty = await call(client, "search", query="herons")
        assert "no documents yet" in empty["note"]


async def test_tools_are_listed_without_a_server(tmp_path: Path) -> None:
    """Listing reaches nothing; a call reports what it can't reach, and the session goes on."""
    environment = {
        "HEADRACE_HOME": str(tmp_path),
        "HEADRACE_REDIS_URL": "redis://127.0.0.1:1/0",
        "HEADRACE_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none",
    }
    async with Client(started(environment, "--read-only")) as client:
        for _ in range(2):
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {"search", "read", "list", "status"}
            shown = await call(client, "search", query="herons")
            assert shown["error"]["code"] == "Unavailable"


async def test_a_gateway_that_is_away(tmp_path: Path) -> None:
    """With HEADRACE_URL nothing else is tried."""
    environment = {"HEADRACE_HOME": str(tmp_path), "HEADRACE_URL": "http://127.0.0.1:1"}
    async with Client(started(environment)) as client:
        error = (await call(client, "search", query="herons"))["error"]
    assert error["code"] == "Unavailable"
    assert "HEADRACE_URL" in error["remedy"]


def test_listing_tools_imports_nothing_heavy() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", LOADED.format(heavy=HEAVY)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.split() == []


async def test_install_and_uninstall(tmp_path: Path) -> None:
    """The command prints the change; --dry-run writes nothing; again changes nothing."""
    path = tmp_path / ".cursor" / "mcp.json"
    cli = Cli({"HOME": str(tmp_path), "HEADRACE_HOME": str(tmp_path / "home")})
    dry = await cli("mcp", "install", "cursor", "--dry-run", "--project", "mine")
    assert (dry.code, path.exists()) == (0, False)
    assert '+    "headrace": {' in dry.stdout

    done = await cli.typed("mcp", "install", "cursor", "--project", "mine")
    assert (done.code, done.stdout) == (0, dry.stdout)
    entry = json.loads(path.read_text())["mcpServers"]["headrace"]
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-3:] == ["mcp", "--project", "mine"]

    again = await cli("mcp", "install", "cursor", "--project", "mine")
    assert again.stdout.strip() == f"{path} stays as it is"
    assert (await cli("mcp", "uninstall", "cursor")).code == 0
    assert json.loads(path.read_text()) == {"mcpServers": {}}
    printed = await cli("mcp", "install", "json", "--url", "http://127.0.0.1:8420")
    assert json.loads(printed.stdout)["mcpServers"]["headrace"]["url"].endswith(":8420/mcp")


async def test_an_up_ends_when_idle(tmp_path: Path) -> None:
    """The first call starts servers and reports it; they end by themselves."""
    environment = {"HEADRACE_HOME": str(tmp_path / "home"), "HEADRACE_MODEL": "local/hash-384"}
    lines: list[str] = []

    async def keep(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    async with Client(started(environment, "--idle", "3")) as client:
        result = await client.call_tool(
            "remember",
            {"uri": "a.md", "content": "Herons nest in March."},
            progress_callback=keep,
            read_timeout_seconds=100,
        )
    assert not result.is_error, result
    assert any("starting the servers" in line for line in lines)

    up = tmp_path / "home" / "up.json"
    await eventually(lambda: not up.exists(), "the idle `up` has ended", timeout=60)
