"""The role of the archiver in a worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from processors.archiving.archiver import Archiver
from processors.archiving.republishing import Republisher
from processors.archiving.upkeep import Upkeep

__all__ = ["Archiving"]


@dataclass(frozen=True)
class Archiving:
    """The three loops of the archiver, which end when ``stop`` is set."""

    archiver: Archiver
    upkeep: Upkeep
    republisher: Republisher

    async def run(self, stop: asyncio.Event) -> None:
        """Archive, maintain and republish lost events, while no other worker does."""

        def is_active() -> bool:
            return self.archiver.is_active

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.archiver.run(stop))
            tasks.create_task(self.upkeep.run(stop, is_active))
            tasks.create_task(self.republisher.run(stop, is_active))
