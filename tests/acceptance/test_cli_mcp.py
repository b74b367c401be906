"""``headrace mcp`` as hosts start it: a process that speaks MCP over stdin and stdout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import ResourceTemplateReference, TextContent, TextResourceContents

from gateway.mcp import results
from gateway.mcp.resources import STATUS, TEMPLATES
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.forking import ROOT
from tests.support.gateways import gateway
from tests.support.running import headrace
from tests.support.shell import install_headrace
from tests.support.waiting import eventually, patience

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
    """Command of the server, as a host starts it."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "gateway.main", "mcp", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """``headrace`` that is forked, for what the server does once it runs."""
    directory = tmp_path_factory.mktemp("program")
    install_headrace(directory)
    return str(directory / "headrace")


def forked(program: str, environment: dict[str, str], *options: str) -> StdioServerParameters:
    """The same, forked."""
    return started(environment, *options).model_copy(
        update={"command": program, "args": ["mcp", *options]}
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
    redis_url: str, database: Database, tmp_path: Path, era: str, program: str
) -> None:
    """Every tool works on a real deployment; the citation opens the exact lines."""
    environment = environment_of(redis_url, database, tmp_path)
    command = started(environment, "--project", "notes")
    if era == "legacy":
        command = forked(program, environment, "--project", "notes")
    async with headrace(redis_url, database), Client(command, mode=era) as client:
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


async def test_a_search_refreshes_the_files_of_this_machine(
    redis_url: str, database: Database, tmp_path: Path, program: str
) -> None:
    """An edit is found without a sync, unless the tools may not publish."""
    environment = environment_of(redis_url, database, tmp_path / "home")
    (tmp_path / "docs").mkdir()
    note = tmp_path / "docs" / "note.md"
    note.write_text("Herons nest in March.")
    async with headrace(redis_url, database):
        await Cli(environment)("sync", str(note.parent))
        note.write_text("Swans nest in April.")
        search = {"query": "swans", "mode": "keyword", "refresh": True}
        async with Client(forked(program, environment, "--read-only")) as client:
            shown = await call(client, "search", **search)
            assert shown["not_refreshed"] == ["this server may not publish"]
        async with Client(forked(program, environment)) as client:

            async def finds() -> bool:
                results = (await call(client, "search", **search))["results"]
                return [passage["content"] for passage in results] == ["Swans nest in April."]

            await eventually(finds, "the edit is found", timeout=30)


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize("server", ["servers", "gateway"])
async def test_resources_and_results_without_the_structured_part(
    redis_url: str, database: Database, tmp_path: Path, era: str, server: str, program: str
) -> None:
    """Both work over stdio, with the servers themselves and with a gateway."""
    async with headrace(redis_url, database), gateway(redis_url, database) as served:
        environment = environment_of(redis_url, database, tmp_path)
        if server == "gateway":
            key = await served.key("notes")
            environment = {"HEADRACE_URL": served.url, "HEADRACE_API_KEY": key}
        environment |= {"HEADRACE_MCP_RESULTS": "text"}
        async with Client(forked(program, environment, "--project", "notes"), mode=era) as client:
            lines = "Herons nest in March.\nSwans nest in April."
            stored = await client.call_tool("remember", {"uri": "why?.md", "content": lines})
            assert stored.structured_content is None
            assert isinstance(stored.content[0], TextContent)
            assert "state: indexed" in stored.content[0].text

            async def text_of(uri: str) -> str:
                [content] = (await client.read_resource(uri)).contents
                assert isinstance(content, TextResourceContents)
                assert content.mime_type in {"text/markdown", "text/plain"}
                return content.text

            reference = ResourceTemplateReference(uri=TEMPLATES[0].uri_template)
            argument = {"name": "uri", "value": "wh"}
            [value] = (await client.complete(reference, argument)).completion.values
            assert await text_of(f"headrace://notes/{value}") == lines
            assert await text_of(f"headrace://notes/{value}?start=2") == "Swans nest in April."
            assert "documents: 1" in await text_of(STATUS)
            for uri, reason in (("other/a.md", "no project"), ("notes/none.md", "no document")):
                with pytest.raises(MCPError, match=reason):
                    await client.read_resource(f"headrace://{uri}")


async def test_a_wrong_form_of_results(tmp_path: Path) -> None:
    """The command ends before it serves, and names the variable."""
    cli = Cli({"HEADRACE_HOME": str(tmp_path), "HEADRACE_MCP_RESULTS": "json"})
    assert "HEADRACE_MCP_RESULTS is 'json'; set it to `text`" in (await cli("mcp")).line


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
            assert (await client.list_resources()).resources
            assert (await client.list_resource_templates()).resource_templates
            assert (await client.list_prompts()).prompts
            shown = await call(client, "search", query="herons")
            assert shown["error"]["code"] == "Unavailable"


async def test_a_gateway_that_is_away(tmp_path: Path, program: str) -> None:
    """With HEADRACE_URL nothing else is tried."""
    environment = {"HEADRACE_HOME": str(tmp_path), "HEADRACE_URL": "http://127.0.0.1:1"}
    async with Client(forked(program, environment)) as client:
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

    again = await cli("mcp", "install", "--host", "cursor", "--project", "mine")
    assert again.stdout.strip() == f"{path} stays as it is"
    assert "name one of claude-code, cursor" in (await cli("mcp", "install")).stderr
    assert (await cli("mcp", "uninstall", "cursor")).code == 0
    assert json.loads(path.read_text()) == {"mcpServers": {}}
    printed = await cli("mcp", "install", "json", "--url", "http://127.0.0.1:8420")
    assert json.loads(printed.stdout)["mcpServers"]["headrace"]["url"].endswith(":8420/mcp")
    printed = await cli("mcp", "install", "json", "--url", "http://127.0.0.1:8420/?results=text")
    entry = json.loads(printed.stdout)["mcpServers"]["headrace"]
    assert entry["url"] == "http://127.0.0.1:8420/mcp?results=text"


async def test_an_up_ends_when_idle(tmp_path: Path, program: str) -> None:
    """The first call starts servers and reports it; they end by themselves."""
    environment = {"HEADRACE_HOME": str(tmp_path / "home"), "HEADRACE_MODEL": "local/hash-384"}
    lines: list[str] = []

    async def keep(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    idle = str(ceil(patience(3)))  # it begins before the call publishes
    async with Client(forked(program, environment, "--idle", idle)) as client:
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
