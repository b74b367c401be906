"""`headrace replay` as a process, whole or killed at a named point."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.cli import Command, Result

__all__ = ["Replays", "Strike"]


@dataclass(frozen=True)
class Strike:
    """When to send whom a signal: at which pass of a point; victim 0 is the replay itself."""

    point: str
    passes: int = 1
    victim: int = 0
    signal: signal.Signals = signal.SIGKILL

    @property
    def arguments(self) -> list[str]:
        """As ``arm_with`` takes them."""
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

    async def start(self, *arguments: str, strike: Strike | None = None) -> Command:
        """Only start it."""
        armed = (strike or Strike("none")).arguments
        return await Command.start("replay", *arguments, environment=self.environment, strike=armed)

    @staticmethod
    async def finished(process: Command, timeout: float = 60) -> Result:
        """What it printed and how it ended; killed where that takes too long."""
        return await process.result(timeout)
