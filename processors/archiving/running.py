"""The role of the archiver in a worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from processors.archiving.archiver import Archiver
from processors.archiving.upkeep import Upkeep

__all__ = ["Archiving"]


@dataclass(frozen=True)
class Archiving:
    """Both loops, which end with ``stop``."""

    archiver: Archiver
    upkeep: Upkeep

    async def run(self, stop: asyncio.Event) -> None:
        """Archive and tidy up, while no other worker does."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.archiver.run(stop))
            tasks.create_task(self.upkeep.run(stop, lambda: self.archiver.is_active))
