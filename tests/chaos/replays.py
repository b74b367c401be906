"""`headrace replay` as a process, whole or killed at a named point."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.cli import Result

__all__ = ["Replays", "Strike"]

_ROOT = Path(__file__).parents[2]
_ARMED = Path(__file__).with_name("armed.py")


@dataclass(frozen=True)
class Strike:
    """When to send whom a signal: at which pass of a point; victim 0 is the replay itself."""

    point: str
    passes: int = 1
    victim: int = 0
    signal: signal.Signals = signal.SIGKILL

    @property
    def arguments(self) -> list[str]:
        """As ``armed.py`` takes them."""
        return [self.point, *map(str, (self.passes, self.victim, int(self.signal)))]


@dataclass(frozen=True)
class Replays:
    """Runs `headrace replay ARGUMENTS` in an environment."""

    environment: Mapping[str, str]

    async def __call__(self, *arguments: str, strike: Strike | None = None) -> Result:
        """Run to its end; with ``strike``, whatever end it takes."""
        process = await self.start(*arguments, strike=strike)
        return await self.finished(process)

    async def killed(self, *arguments: str, strike: Strike) -> None:
        """Run until the strike has killed the replay itself; that it did is checked."""
        result = await self(*arguments, strike=strike)
        assert result.code == -signal.SIGKILL, result

    async def start(
        self, *arguments: str, strike: Strike | None = None
    ) -> asyncio.subprocess.Process:
        """Only start it."""
        armed = strike or Strike("none")
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", str(_ARMED)),
            *(*armed.arguments, "replay", *arguments),
            env={**os.environ, "PYTHONPATH": str(_ROOT), **self.environment},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    @staticmethod
    async def finished(process: asyncio.subprocess.Process, timeout: float = 60) -> Result:
        """What it printed and how it ended; killed where that takes too long."""
        try:
            async with asyncio.timeout(timeout):
                stdout, stderr = await process.communicate()
        except TimeoutError:
            process.kill()
            raise
        assert process.returncode is not None
        return Result(process.returncode, stdout.decode(), stderr.decode())
