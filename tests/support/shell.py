"""A shell that keeps its variables from one block of a page to the next."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.forked_services import write_program
from tests.support.forking import fork_server
from tests.support.waiting import within

__all__ = ["Shell", "install_headrace", "require_programs", "shell"]

_LONGEST_SECONDS = 60.0
_OPTIONAL = ("curl", "jq")
_END = "-- the block has ended --\n"


def require_programs(script: str) -> None:
    """Skip the test if a script runs a program that this machine may lack, and does."""
    named = [name for name in _OPTIONAL if re.search(rf"\b{name}\b", script)]
    missing = [name for name in named if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed, so the commands were not run")


class Shell:
    """Runs blocks one after the other; a command that fails ends it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def run(self, block: str) -> str:
        """Return the output of a block.

        Raises:
            AssertionError: a command of the block failed; the message is the output so far.
        """
        assert self._process.stdin is not None
        # the group gets no input, or it would read the commands that follow
        self._process.stdin.write(f"{{\n{block}}} < /dev/null\nprintf %s '{_END}'\n".encode())
        lines: list[str] = []
        async with within(_LONGEST_SECONDS):
            while (line := await self._line()) != _END:
                assert line, f"the block failed with the output:\n{''.join(lines)}"
                lines.append(line)
        return "".join(lines)

    async def _line(self) -> str:
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode()


@asynccontextmanager
async def shell(directory: Path, environment: Mapping[str, str]) -> AsyncIterator[Shell]:
    """Start bash in a directory, with nothing but this environment."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-eu", "-o", "pipefail"),
        cwd=directory,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Shell(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def install_headrace(directory: Path) -> None:
    """Write a program ``headrace`` that runs in a process of the fork server."""
    write_program(directory / "headrace", fork_server())
