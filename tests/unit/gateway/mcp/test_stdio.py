"""Start of `headrace mcp`: its options, and lists that wait for no import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import typer.main

from gateway.main import application
from gateway.mcp import stdio
from gateway.mcp.stdio import Options, options_of
from tests.support.forking import ROOT

START = (sys.executable, "-P", "-m", "gateway.main", "mcp")
HEAVY = ("asyncio", "anyio", "mcp", "pydantic", "typer", "runtime", "events", "store", "numpy")
"""Modules that hosts must not wait for."""
LOADED = """
import sys
from gateway.main import run
from gateway.mcp.stdio import Handshake, options_of
Handshake("notes", may_publish=True)
options_of(["--project", "notes"])
print(*[name for name in {heavy!r} if name in sys.modules])
"""
BLOCKED_SDK = """
print("stray output")
with open({gate!r}) as gate:
    raise ImportError(gate.read())
"""
OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "editor", "version": "1"},
}


def line(number: int, method: str, params: Mapping[str, object] | None = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
    return json.dumps(message).encode() + b"\n"


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("", Options()),
        ("--project notes", Options("notes")),
        ("--project=notes=x", Options("notes=x")),
        ("-p notes --read-only", Options("notes", read_only=True)),
        ("--read-only --idle PT1M --read-only", Options(read_only=True, idle="PT1M")),
        ("--idle=PT1M -p a --project b", Options("b", idle="PT1M")),
    ],
)
def test_options(arguments: str, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quick parser and the library of the command line agree."""
    served: list[Options] = []
    monkeypatch.setattr(stdio, "serve", served.append)
    command = typer.main.get_command(application(["mcp"]))
    command(["mcp", *arguments.split()], standalone_mode=False)
    assert [options_of(arguments.split())] == served == [options]


@pytest.mark.parametrize(
    "arguments",
    [
        *("install json", "--help", "-h", "--project", "--project=", "--project --read-only"),
        *("-pnotes", "-p=notes", "--read-only=1", "--no-read-only", "--proj notes", "-- notes"),
        *("notes", "--project notes install json", "--read-only uninstall"),
    ],
)
def test_other_arguments_are_left_to_the_library(arguments: str) -> None:
    assert options_of(arguments.split()) is None


def test_nothing_heavy_is_imported() -> None:
    printed = subprocess.run(
        [sys.executable, "-P", "-c", LOADED.format(heavy=HEAVY)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.split() == []


def test_lists_do_not_wait_for_the_sdk(tmp_path: Path) -> None:
    """The tools are listed before the SDK is imported; its failure ends the process in one line."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "__init__.py").write_text(BLOCKED_SDK.format(gate=str(gate)))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    pipe = subprocess.PIPE
    with subprocess.Popen(START, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line(1, "initialize", OPENING) + line(2, "tools/list"))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert answers[0]["result"]["serverInfo"]["name"] == "headrace"
        assert answers[1]["result"]["tools"][0]["name"] == "search"
        process.stdin.write(line(3, "tools/call", {"name": "status"}))
        process.stdin.flush()
        with gate.open("w") as writer:
            (tmp_path / "open").write_text("the SDK is broken")
            (tmp_path / "open").replace(gate)  # the server imports it again, to report the error
            writer.write("the SDK is broken")
        rest, errors = process.communicate()
    assert (process.returncode, rest) == (1, b"")
    [failure] = {*errors.decode().splitlines()} - {"stray output"}
    assert failure.startswith("headrace: unexpected ImportError: the SDK")


def test_the_end_of_input_ends_the_process() -> None:
    """Also while the SDK is being imported."""
    done = subprocess.run(
        START,
        input=line(1, "initialize", OPENING),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["id"] == 1


def test_without_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends at once, and not at the first call."""
    monkeypatch.setattr(stdio, "_SDK", "no_such_sdk")
    with pytest.raises(ModuleNotFoundError, match="no_such_sdk"):
        stdio.serve(Options())
