"""Entries for Headrace in the configuration files of MCP hosts.

A file keeps everything else that is in it. It is copied before it is written, and a second install
changes nothing. No entry contains a key: it refers to the environment variable HEADRACE_API_KEY.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from runtime.errors import ConfigurationError, UsageError

__all__ = ["Edit", "Entry", "Host", "Scope", "apply", "command_line", "plan"]

NAME = "headrace"
KEY_VARIABLE = "HEADRACE_API_KEY"
_INPUT = "headrace-api-key"
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_TABLE = re.compile(r"^[ \t]*\[")
_OWN_TABLE = re.compile(rf'^[ \t]*\[\s*mcp_servers\s*\.\s*"?{NAME}"?\s*(?:\.[^\]]*)?\]')
_SKILL = Path(__file__).with_name("skill.md")


class Host(StrEnum):
    """Programs that start MCP servers; ``json`` prints an entry, ``skill`` is a file of advice."""

    CLAUDE_CODE = "claude-code"
    CURSOR = "cursor"
    VSCODE = "vscode"
    CODEX = "codex"
    GEMINI = "gemini"
    JSON = "json"
    SKILL = "skill"


class Scope(StrEnum):
    """Users of an entry: this user in all directories, or all users of a directory."""

    USER = "user"
    PROJECT = "project"


@dataclass(frozen=True)
class Entry:
    """A server as a host reaches it: by a command, or with ``url`` over HTTP."""

    command: tuple[str, ...] = ()
    url: str = ""


@dataclass(frozen=True)
class Edit:
    """A file with its text before (None: there is no file) and after (None: to be removed)."""

    path: Path
    before: str | None
    after: str | None

    @property
    def changes(self) -> bool:
        """True if the file has to be written."""
        return self.before != self.after

    def difference(self) -> str:
        """Changed lines without their surroundings, which may contain keys of other servers.

        A new layout of JSON is not a change.
        """
        lines = difflib.unified_diff(
            _laid_out(self.before or ""),
            _laid_out(self.after or ""),
            "before",
            str(self.path),
            lineterm="",
            n=0,
        )
        return "\n".join(lines)


@dataclass(frozen=True)
class _Format:
    """Places and form of a host's file: ``user`` below the home, ``project`` below a directory."""

    user: str
    project: str
    servers: str = "mcpServers"
    has_type: bool = False
    url_field: str = "url"
    key: str = "${" + KEY_VARIABLE + "}"


_FORMATS = {
    Host.CLAUDE_CODE: _Format(".claude.json", ".mcp.json", has_type=True),
    Host.CURSOR: _Format(".cursor/mcp.json", ".cursor/mcp.json", key="${env:" + KEY_VARIABLE + "}"),
    Host.VSCODE: _Format(
        "Code/User/mcp.json",
        ".vscode/mcp.json",
        servers="servers",
        has_type=True,
        key="${input:" + _INPUT + "}",
    ),
    Host.CODEX: _Format(".codex/config.toml", ".codex/config.toml"),
    Host.GEMINI: _Format(".gemini/settings.json", ".gemini/settings.json", url_field="httpUrl"),
    Host.SKILL: _Format(".claude/skills/headrace/SKILL.md", ".claude/skills/headrace/SKILL.md"),
}


def command_line() -> tuple[str, ...]:
    """Absolute command that starts Headrace: hosts have a shorter PATH than shells."""
    beside = Path(sys.executable).with_name(NAME)
    if beside.is_file():
        return (str(beside),)
    path = shutil.which(NAME)
    return (path,) if path else (sys.executable, "-P", "-m", "gateway.main")


def plan(host: Host, scope: Scope, entry: Entry | None, *, home: Path, directory: Path) -> Edit:
    """Return the edit that writes ``entry`` into the file of a host; None takes it out.

    Raises:
        ConfigurationError: the file is not in the format of the host; it stays as it is.
        UsageError: the host has no file.
    """
    if host is Host.JSON:
        raise UsageError(
            "`json` has no file", "use `headrace mcp install json`, which prints the entry"
        )
    path = _path(host, scope, home, directory)
    before = path.read_text("utf-8") if path.exists() else None
    if host is Host.SKILL:
        return Edit(path, before, None if entry is None else _SKILL.read_text("utf-8"))
    try:
        if host is Host.CODEX:
            after = _edited_toml(before or "", entry)
        else:
            after = _edited_json(before or "", host, entry)
    except ValueError as error:
        shown = "" if entry is None else f": {_pasted(host, entry)}"
        raise ConfigurationError(
            f"{path} can't be edited without losing something: {error}",
            f"edit it by hand{shown}",
        ) from None
    return Edit(path, before, None if before is None and entry is None else after)


def apply(edit: Edit) -> Path | None:
    """Write the file, and return the copy of the former one if there was one.

    A link stays a link. The file keeps its mode.
    """
    path = edit.path.resolve()
    copy = None
    if edit.before is not None:
        copy = _unused(path)
        shutil.copy2(path, copy)
    if edit.after is None:
        path.unlink(missing_ok=True)
        return copy
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.headrace-draft")
    draft.touch(mode=0o600)
    draft.write_text(edit.after, "utf-8")
    if copy is not None:
        shutil.copymode(copy, draft)
    draft.replace(path)
    return copy


def as_json(host: Host, entry: Entry) -> str:
    """Entry as JSON, to be pasted into a file."""
    shape = _FORMATS.get(host, _FORMATS[Host.CLAUDE_CODE])
    return json.dumps({shape.servers: {NAME: _json_entry(shape, entry)}}, indent=2)


def _pasted(host: Host, entry: Entry) -> str:
    text = _toml_entry(entry) if host is Host.CODEX else as_json(host, entry)
    return " ".join(text.split())


def _laid_out(text: str) -> list[str]:
    """Lines of a text; JSON has one line for each part."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False).splitlines()
    except ValueError:
        return text.splitlines()


def _unused(path: Path) -> Path:
    number = 1
    while (copy := path.with_name(f"{path.name}.before-headrace-{number}")).exists():
        number += 1
    return copy


def _path(host: Host, scope: Scope, home: Path, directory: Path) -> Path:
    if scope is Scope.PROJECT:
        return directory / _FORMATS[host].project
    base = home
    if host is Host.CODEX and os.environ.get("CODEX_HOME"):
        return Path(os.environ["CODEX_HOME"]) / "config.toml"
    if host is Host.VSCODE:
        on_mac = sys.platform == "darwin"
        base = home / ("Library/Application Support" if on_mac else ".config")
    return base / _FORMATS[host].user


def _json_entry(shape: _Format, entry: Entry) -> dict[str, Any]:
    if entry.url:
        fields: dict[str, Any] = {
            shape.url_field: entry.url,
            "headers": {"Authorization": f"Bearer {shape.key}"},
        }
        return ({"type": "http"} if shape.has_type else {}) | fields
    program, *arguments = entry.command
    fields = {"command": program, "args": arguments}
    return ({"type": "stdio"} if shape.has_type else {}) | fields


def _edited_json(before: str, host: Host, entry: Entry | None) -> str:
    """Text of a JSON file with the entry, or without it; raises ValueError."""
    shape = _FORMATS[host]
    document = json.loads(before, object_pairs_hook=_unique) if before.strip() else {}
    servers = document.get(shape.servers, {}) if isinstance(document, dict) else None
    if not isinstance(servers, dict):
        raise ValueError(f"it is not an object with the object {shape.servers}")  # noqa: TRY004
    edited = _with_entry(document, shape, servers, entry)
    if host is Host.VSCODE:
        edited = _with_input(edited, wanted=entry is not None and bool(entry.url))
    if edited == document:
        return before
    match = _INDENT.search(before)
    indent: int | str = match[1] if match else 2
    return json.dumps(edited, indent=indent, ensure_ascii=False) + "\n"


def _with_entry(
    document: Mapping[str, Any], shape: _Format, servers: Mapping[str, Any], entry: Entry | None
) -> dict[str, Any]:
    if entry is not None:
        return {**document, shape.servers: {**servers, NAME: _json_entry(shape, entry)}}
    if NAME not in servers:
        return dict(document)
    others = {name: server for name, server in servers.items() if name != NAME}
    return {**document, shape.servers: others}


def _with_input(document: dict[str, Any], *, wanted: bool) -> dict[str, Any]:
    """Let VS Code ask for the key, which it keeps encrypted, or no longer ask."""
    inputs = document.get("inputs", [])
    if not isinstance(inputs, list):
        raise ValueError("its inputs are not a list")  # noqa: TRY004  # of its text
    others = [item for item in inputs if not (isinstance(item, dict) and item.get("id") == _INPUT)]
    if wanted:
        question = {
            "type": "promptString",
            "id": _INPUT,
            "description": "API key of Headrace",
            "password": True,
        }
        if question in inputs:
            return document
        return {**document, "inputs": [*others, question]}
    return document if len(others) == len(inputs) else {**document, "inputs": others}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("it has a key twice")
    return fields


def _edited_toml(before: str, entry: Entry | None) -> str:
    """Text of Codex's file with the entry, or without it; all other lines stay as they are.

    Raises:
        ValueError: the file is not TOML, or has the entry in a form that can't be replaced.
    """
    document = tomllib.loads(before)
    servers = document.get("mcp_servers", {})
    wanted = None if entry is None else _toml_entry(entry)
    if servers.get(NAME) == (
        None if wanted is None else tomllib.loads(wanted)["mcp_servers"][NAME]
    ):
        return before
    kept = _without_own_tables(before)
    text = kept
    if wanted is not None:
        text = f"{kept.rstrip()}\n\n{wanted}" if kept.strip() else wanted
    others = {name: server for name, server in servers.items() if name != NAME}
    expected = {**document, "mcp_servers": others}
    if _without_entry(tomllib.loads(text)) != _without_entry(expected) or (
        wanted is None and NAME in tomllib.loads(text).get("mcp_servers", {})
    ):
        raise ValueError("its entry of headrace is not a table of its own")
    return text


def _without_own_tables(text: str) -> str:
    lines = []
    is_own = False
    for line in text.splitlines(keepends=True):
        if _TABLE.match(line):
            is_own = _OWN_TABLE.match(line) is not None
        if not is_own:
            lines.append(line)
    return "".join(lines)


def _without_entry(document: Mapping[str, Any]) -> dict[str, Any]:
    servers = {
        name: server for name, server in document.get("mcp_servers", {}).items() if name != NAME
    }
    rest = {name: part for name, part in document.items() if name != "mcp_servers"}
    return rest | ({"mcp_servers": servers} if servers else {})


def _toml_entry(entry: Entry) -> str:
    lines = [f"[mcp_servers.{NAME}]"]
    if entry.url:
        lines += [
            f"url = {json.dumps(entry.url)}",
            f'bearer_token_env_var = "{KEY_VARIABLE}"',
        ]
    else:
        program, *arguments = entry.command
        lines += [f"command = {json.dumps(program)}", f"args = {json.dumps(arguments)}"]
    return "\n".join(lines) + "\n"
