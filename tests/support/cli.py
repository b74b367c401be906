"""The command line as a person runs it: another process, its output and its exit code."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.databases import Database

__all__ = ["Cli", "Result", "environment_of"]

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """What a command printed, and how it ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The last line of stdout."""
        return json.loads(self.stdout.splitlines()[-1])

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Every line of stdout."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def line(self) -> str:
        """The one line of stderr of a failed command; what it takes to be one is checked."""
        assert len(self.stderr.strip().splitlines()) == 1, self.stderr
        return self.last_line

    @property
    def last_line(self) -> str:
        """As ``line``, for a command that told its progress before."""
        assert self.code == 1, self
        line = self.stderr.strip().splitlines()[-1]
        assert line.startswith("headrace: ")
        assert "Traceback" not in self.stderr
        return line


@dataclass(frozen=True)
class Cli:
    """``headrace`` in an environment."""

    environment: dict[str, str]

    async def __call__(
        self, *arguments: str, stdin: str | bytes = "", **environment: str
    ) -> Result:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.main", *arguments),
            env={**os.environ, "PYTHONPATH": str(_ROOT), **self.environment, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(100):
            stdout, stderr = await process.communicate(
                stdin.encode() if isinstance(stdin, str) else stdin
            )
        assert process.returncode is not None
        return Result(process.returncode, stdout.decode(), stderr.decode())


def environment_of(redis_url: str, database: Database, home: Path) -> dict[str, str]:
    """Settings for servers that are there, and a home with nothing in it."""
    return {
        "HEADRACE_HOME": str(home),
        "HEADRACE_REDIS_URL": redis_url,
        "HEADRACE_DATABASE_URL": database.operator_url,
        "HEADRACE_OWNER_DATABASE_URL": database.owner_url,
    }
