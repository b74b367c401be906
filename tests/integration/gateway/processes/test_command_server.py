"""Command server: commands run in its processes as they would run in their own.

The tests of commands share a server, which the last of them ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from runtime.child_process import command_of
from tests.support.forking import ROOT
from tests.support.processes import tree
from tests.support.waiting import eventually, within

_SERVER = """
import sys
from pathlib import Path
from gateway.processes import command_server
command_server._ORDER_SECONDS = 60.0
with command_server.command_server() as server:
    server.listen(Path(sys.argv[1]))
    sys.stdin.read()
"""
_UP = """
import os
import signal
import sys
from pathlib import Path
from gateway.processes.command_server import command_server
with command_server() as server, open(Path(sys.argv[1], "service.log"), "wb") as log:
    server.listen(Path(sys.argv[1]))
    service = None
    for line in sys.stdin:
        word, *arguments = line.split()
        if word == "start":
            service = server.start(arguments, os.environ, log.fileno(), signal.SIGTERM)
            print(service and service.pid, flush=True)
        elif word == "wait":
            print(service.wait(), flush=True)
        else:
            service.send_signal(int(word))
"""
_CLIENT = """
import sys
from gateway.processes import forked_command
forked_command._ANSWER_SECONDS = 60.0  # the server of a busy machine answers late
from gateway.main import run
try:
    run()
finally:
    if "typer" in sys.modules:
        print("[in its own process]", file=sys.stderr)
"""
_IN_ITS_OWN_PROCESS = "[in its own process]\n"


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A directory whose path is short enough for a socket."""
    with TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
async def server(home: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command server."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SERVER, str(home)), env=_environment(home), stdin=-1
    )
    await eventually((home / "commands.sock").exists, "the server listens", timeout=60)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _environment(home: Path, **variables: str) -> dict[str, str]:
    own = {"PYTHONPATH": str(ROOT), "HEADRACE_HOME": str(home)}
    return {**os.environ, **own, **variables}


async def _start(
    home: Path, *arguments: str, directory: Path = ROOT, environment: Mapping[str, str] = {}
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _CLIENT, *arguments),
        env=_environment(home, **environment),
        cwd=directory,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def _run(
    home: Path, *arguments: str, directory: Path = ROOT, environment: Mapping[str, str] = {}
) -> tuple[int | None, str, str]:
    process = await _start(home, *arguments, directory=directory, environment=environment)
    async with within(60):
        output, error = await process.communicate()
    return process.returncode, output.decode(), error.decode()


async def test_commands_do_the_same_in_a_process_of_the_server(
    server: asyncio.subprocess.Process, home: Path, tmp_path: Path
) -> None:
    refused = {
        "HEADRACE_REDIS_URL": "redis://127.0.0.1:1/0",
        "HEADRACE_DATABASE_URL": "postgres://x",
    }
    (tmp_path / "sub").mkdir()
    cases: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (("ask", "--help"), {}),
        (("ask", "x", "--no-such-option"), {}),
        (("ask", "x", "--timeout", "0"), {"HEADRACE_REDIS_URL": "redis://127.0.0.1:1/0"}),
        (("ask", "x"), {"HEADRACE_NO_SUCH_SETTING": "1"}),
        (("ask", "x"), refused),
        (("sync", "sub/missing"), refused),
        (("ask", "\N{SNOWMAN}", "--mode", "\N{SNOWMAN}"), {"PYTHONIOENCODING": "latin-1:replace"}),
    ]
    for arguments, variables in cases:
        forked = await _run(home, *arguments, directory=tmp_path, environment=variables)
        other = {**variables, "HEADRACE_HOME": str(tmp_path)}
        code, output, error = await _run(home, *arguments, directory=tmp_path, environment=other)
        assert error.endswith(_IN_ITS_OWN_PROCESS), arguments
        assert forked == (code, output, error.removesuffix(_IN_ITS_OWN_PROCESS)), arguments
    # another command, and another path of imports
    for command, path in (("status", str(ROOT)), ("ask", f"{ROOT}:")):
        code, _, error = await _run(home, command, "--help", environment={"PYTHONPATH": path})
        assert (code, error) == (0, _IN_ITS_OWN_PROCESS)


async def test_signals_reach_the_command_and_its_process_ends_with_it(
    server: asyncio.subprocess.Process, home: Path
) -> None:
    connections: asyncio.Queue[str] = asyncio.Queue()
    async with _silent_redis(connections) as url, within(60):
        variables = {"HEADRACE_REDIS_URL": url}
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)):
            command = await _start(home, "ask", "x", environment=variables)
            assert await connections.get() == "open"
            command.send_signal(number)
            await command.communicate()
            assert command.returncode == code
            assert await connections.get() == "closed"  # so its process has ended


@asynccontextmanager
async def _silent_redis(connections: asyncio.Queue[str]) -> AsyncIterator[str]:
    """Run a server that never answers; it notes when a connection is open and closed."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await connections.put("open")
        await reader.read()
        writer.close()
        await connections.put("closed")

    silent = await asyncio.start_server(connect, "127.0.0.1", 0)
    async with silent:
        yield f"redis://127.0.0.1:{silent.sockets[0].getsockname()[1]}/0"


async def test_services_run_in_processes_of_the_server(tmp_path: Path) -> None:
    """A service has its arguments as command line, and ends by the signals of its starter.

    It ends with its starter and with the server, which then starts none.
    """
    connections: asyncio.Queue[str] = asyncio.Queue()
    async with _silent_redis(connections) as url, within(120):
        up = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _UP, str(tmp_path)),
            env=_environment(tmp_path, HEADRACE_REDIS_URL=url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )

        async def call(line: str) -> str:
            assert up.stdin is not None
            assert up.stdout is not None
            up.stdin.write(f"{line}\n".encode())
            return (await up.stdout.readline()).decode().strip()

        try:
            await call("start worker --help")
            assert await call("wait") == "0"
            assert "until SIGTERM" in (tmp_path / "service.log").read_text()
            for ending, code in (("15\nwait", "130"), ("9\nwait", "-9")):
                pid = int(await call("start ask x"))
                assert await connections.get() == "open"
                assert command_of(pid).startswith("headrace ask x")
                assert await call(ending) == code
                assert await connections.get() == "closed"
            pid = int(await call("start ask x"))
            assert await connections.get() == "open"
            [server] = tree(up.pid) - {up.pid, pid}
            os.kill(server, signal.SIGKILL)
            assert await call("wait") == "-15"
            assert await connections.get() == "closed"
            assert await call("start ask x") == "None"
        finally:
            up.kill()
            await up.wait()


async def test_server_ends_with_up(server: asyncio.subprocess.Process, home: Path) -> None:
    assert server.stdin is not None
    server.stdin.close()
    async with within(30):
        assert await server.wait() == 0
    assert not (home / "commands.sock").exists()
    code, _, error = await _run(home, "ask", "--help")
    assert (code, error) == (0, _IN_ITS_OWN_PROCESS)
