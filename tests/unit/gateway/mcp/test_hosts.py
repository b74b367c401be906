"""Entries in the files of hosts: everything else stays, and a second install changes nothing."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.mcp.hosts import Edit, Entry, Host, Scope, apply, as_json, command_line, plan
from runtime.errors import ConfigurationError

STDIO = Entry(("/opt/headrace/bin/headrace", "mcp", "--project", "mine"))
HTTP = Entry(url="http://127.0.0.1:8420/mcp")
FILES = {
    Host.CLAUDE_CODE: """{
    "numStartups": 42,
    "projects": {"/home/me/x": {"allowedTools": [], "history": ["é"]}},
    "mcpServers": {
        "other": {"type": "stdio", "command": "npx", "args": ["o"], "env": {"K": "s3cret"}}
    }
}
""",
    Host.CURSOR: '{"mcpServers": {"other": {"url": "https://example.org", "headers": {"A": "b"}}}}',
    Host.VSCODE: """{
\t"inputs": [{"type": "promptString", "id": "other-key", "description": "k", "password": true}],
\t"servers": {"other": {"type": "http", "url": "https://example.org/mcp"}}
}""",
    Host.CODEX: """# my settings
model = "o9"  # the best one

[mcp_servers.other]
command = "npx"
args = ["-y", "other"]

[mcp_servers.other.env]
KEY = "s3cret"

[tui]
theme = "dark"
""",
    Host.GEMINI: '{"theme": "GitHub", "mcpServers": {"other": {"command": "npx"}}}',
}
PLACES = {
    (Host.CLAUDE_CODE, Scope.USER): ".claude.json",
    (Host.CLAUDE_CODE, Scope.PROJECT): ".mcp.json",
    (Host.CURSOR, Scope.USER): ".cursor/mcp.json",
    (Host.CURSOR, Scope.PROJECT): ".cursor/mcp.json",
    (Host.VSCODE, Scope.USER): ".config/Code/User/mcp.json",
    (Host.VSCODE, Scope.PROJECT): ".vscode/mcp.json",
    (Host.CODEX, Scope.USER): ".codex/config.toml",
    (Host.CODEX, Scope.PROJECT): ".codex/config.toml",
    (Host.GEMINI, Scope.USER): ".gemini/settings.json",
    (Host.GEMINI, Scope.PROJECT): ".gemini/settings.json",
}
STDIO_ENTRY = {"command": STDIO.command[0], "args": list(STDIO.command[1:])}
EXPECTED: dict[Host, tuple[dict[str, Any], dict[str, Any]]] = {
    Host.CLAUDE_CODE: (
        {"type": "stdio", **STDIO_ENTRY},
        {
            "type": "http",
            "url": HTTP.url,
            "headers": {"Authorization": "Bearer ${HEADRACE_API_KEY}"},
        },
    ),
    Host.CURSOR: (
        STDIO_ENTRY,
        {"url": HTTP.url, "headers": {"Authorization": "Bearer ${env:HEADRACE_API_KEY}"}},
    ),
    Host.VSCODE: (
        {"type": "stdio", **STDIO_ENTRY},
        {
            "type": "http",
            "url": HTTP.url,
            "headers": {"Authorization": "Bearer ${input:headrace-api-key}"},
        },
    ),
    Host.CODEX: (STDIO_ENTRY, {"url": HTTP.url, "bearer_token_env_var": "HEADRACE_API_KEY"}),
    Host.GEMINI: (
        STDIO_ENTRY,
        {"httpUrl": HTTP.url, "headers": {"Authorization": "Bearer ${HEADRACE_API_KEY}"}},
    ),
}
SERVERS = {Host.VSCODE: "servers", Host.CODEX: "mcp_servers"}
HOSTS = [*FILES]


@pytest.fixture(autouse=True)
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODEX_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "person"


def edit(host: Host, entry: Entry | None, home: Path, scope: Scope = Scope.USER) -> Edit:
    return plan(host, scope, entry, home=home, directory=home / "work")


def existing(host: Host, home: Path) -> Path:
    """A person's file of a host, with other entries."""
    path = home / PLACES[host, Scope.USER]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FILES[host])
    path.chmod(0o600)
    return path


def parsed(host: Host, text: str) -> dict[str, Any]:
    document: dict[str, Any] = tomllib.loads(text) if host is Host.CODEX else json.loads(text)
    return document


def servers(host: Host, text: str) -> dict[str, Any]:
    entries: dict[str, Any] = parsed(host, text)[SERVERS.get(host, "mcpServers")]
    return entries


@pytest.mark.parametrize("entry", [STDIO, HTTP], ids=["stdio", "http"])
@pytest.mark.parametrize("host", HOSTS)
def test_install_twice_and_uninstall(host: Host, entry: Entry, home: Path) -> None:
    """The entry is exact, all else stays, a copy is kept, and uninstall restores the content."""
    path = existing(host, home)
    before = parsed(host, FILES[host])

    copy = apply(edit(host, entry, home))
    assert copy is not None
    assert copy.read_text() == FILES[host]
    entries = servers(host, path.read_text())
    assert entries.pop("headrace") == EXPECTED[host][entry is HTTP]
    assert entries == servers(host, FILES[host])
    assert path.stat().st_mode & 0o777 == 0o600

    again = edit(host, entry, home)
    assert (again.changes, again.difference()) == (False, "")

    apply(edit(host, None, home))
    assert parsed(host, path.read_text()) == before
    assert not edit(host, None, home).changes


@pytest.mark.parametrize(("host", "scope"), PLACES)
def test_a_file_that_does_not_exist(host: Host, scope: Scope, home: Path) -> None:
    """It is made at the host's place, and uninstall leaves none of our entries."""
    made = edit(host, STDIO, home, scope)
    assert made.path == (home if scope is Scope.USER else home / "work") / PLACES[host, scope]
    assert apply(made) is None
    assert set(servers(host, made.path.read_text())) == {"headrace"}
    assert not edit(host, STDIO, home, scope).changes
    assert not edit(host, None, home / "elsewhere", scope).changes


@pytest.mark.parametrize("host", HOSTS)
def test_another_entry_replaces_the_former(host: Host, home: Path) -> None:
    path = existing(host, home)
    apply(edit(host, STDIO, home))
    apply(edit(host, HTTP, home))
    assert servers(host, path.read_text())["headrace"] == EXPECTED[host][1]
    apply(edit(host, STDIO, home))
    assert servers(host, path.read_text())["headrace"] == EXPECTED[host][0]
    assert len([*path.parent.glob("*.before-headrace-*")]) == 3


@pytest.mark.parametrize("host", HOSTS)
def test_the_difference_has_no_secret_of_others(host: Host, home: Path) -> None:
    """Only the lines of our entry are printed, and nothing is written for that."""
    path = existing(host, home)
    shown = edit(host, STDIO, home)
    assert "headrace" in shown.difference()
    if host in {Host.CLAUDE_CODE, Host.CODEX}:
        assert "s3cret" not in shown.difference()
    assert path.read_text() == FILES[host]


def test_vscode_asks_for_the_key(home: Path) -> None:
    """The key is in VS Code's own store; the question for it comes and goes with the entry."""
    path = existing(Host.VSCODE, home)
    apply(edit(Host.VSCODE, HTTP, home))
    ids = [question["id"] for question in json.loads(path.read_text())["inputs"]]
    assert ids == ["other-key", "headrace-api-key"]
    apply(edit(Host.VSCODE, STDIO, home))
    assert [question["id"] for question in json.loads(path.read_text())["inputs"]] == ["other-key"]


def test_codex_keeps_comments_and_order(home: Path) -> None:
    path = existing(Host.CODEX, home)
    apply(edit(Host.CODEX, STDIO, home))
    assert path.read_text().startswith(FILES[Host.CODEX].rstrip())
    text = path.read_text().replace("[tui]", "[mcp_servers.headrace.env]\nA = 'b'\n\n[tui]")
    path.write_text(text)
    apply(edit(Host.CODEX, HTTP, home))
    assert servers(Host.CODEX, path.read_text())["headrace"] == EXPECTED[Host.CODEX][1]
    assert "# the best one" in path.read_text()
    assert tomllib.loads(path.read_text())["tui"] == {"theme": "dark"}


@pytest.mark.parametrize(
    ("host", "text"),
    [
        (Host.CLAUDE_CODE, "{ broken"),
        (Host.VSCODE, '{"servers": {} /* my comment */}'),
        (Host.CURSOR, '{"mcpServers": []}'),
        (Host.GEMINI, '{"a": 1, "a": 2}'),
        (Host.CODEX, "= broken"),
        (Host.CODEX, 'mcp_servers = {headrace = {command = "x"}}'),
    ],
)
def test_a_file_that_cannot_be_edited_stays(host: Host, text: str, home: Path) -> None:
    """The error has the entry, to be pasted by hand."""
    path = existing(host, home)
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"by hand.*headrace"):
        edit(host, STDIO, home)
    assert path.read_text() == text


def test_a_link_stays_a_link(home: Path) -> None:
    """Many people keep these files in a repository and link to them."""
    path = existing(Host.CURSOR, home)
    kept = path.rename(home / "dotfile.json")
    path.symlink_to(kept)
    apply(edit(Host.CURSOR, STDIO, home))
    assert path.is_symlink()
    assert "headrace" in json.loads(kept.read_text())["mcpServers"]


def test_the_skill(home: Path) -> None:
    """It is a file of its own, which teaches the command line."""
    apply(edit(Host.SKILL, STDIO, home))
    path = home / ".claude/skills/headrace/SKILL.md"
    assert path.read_text().startswith("---\nname: headrace\ndescription: ")
    assert "headrace ask" in path.read_text()
    assert not edit(Host.SKILL, STDIO, home).changes
    apply(edit(Host.SKILL, None, home))
    assert not path.exists()


def test_the_printed_entry(home: Path) -> None:
    assert json.loads(as_json(Host.JSON, STDIO))["mcpServers"]["headrace"]["type"] == "stdio"


def test_the_command_is_absolute() -> None:
    """Hosts start it with a bare PATH."""
    assert Path(command_line()[0]).is_absolute()
