"""`headrace replay` as a process that may be killed at a named point."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.cli import Command, Result

__all__ = ["Replays", "Strike"]


@dataclass(frozen=True)
class Strike:
    """Signal at a given pass of a failpoint; victim 0 is the replay itself."""

    point: str
    passes: int = 1
    victim: int = 0
    signal: signal.Signals = signal.SIGKILL

    @property
    def arguments(self) -> list[str]:
        """Arguments of ``arm_with``."""
        return [self.point, *map(str, (self.passes, self.victim, int(self.signal)))]


@dataclass(frozen=True)
class Replays:
    """Runs `headrace replay ARGUMENTS` in an environment."""

    environment: Mapping[str, str]

    async def __call__(self, *arguments: str, strike: Strike | None = None) -> Result:
        """Run the command to its end, with or without a strike."""
        process = await self.start(*arguments, strike=strike)
        return await self.finished(process)

    async def killed(self, *arguments: str, strike: Strike) -> None:
        """Run the command, and assert that the strike killed it."""
        result = await self(*arguments, strike=strike)
        assert result.code == -signal.SIGKILL, result

    async def start(self, *arguments: str, strike: Strike | None = None) -> Command:
        """Start the command without waiting for it."""
        armed = (strike or Strike("none")).arguments
        return await Command.start("replay", *arguments, environment=self.environment, strike=armed)

    @staticmethod
    async def finished(process: Command, timeout: float = 60) -> Result:
        """Result of the command; it is killed after ``timeout`` seconds."""
        return await process.result(timeout)
