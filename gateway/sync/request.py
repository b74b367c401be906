"""Request to sync a source with the servers of the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.clients import check_signing_key, open_client, open_database, open_store, store_of
from gateway.progress import ShowProgress
from gateway.servers import configured, stack
from gateway.sync.registration import Destination
from gateway.sync.report import SyncReport
from gateway.sync.sync import Until, preview_sync, size_limits, sync_source
from runtime.errors import Unavailable
from runtime.settings import Settings
from sources import Source
from sources.comparison import Step

__all__ = ["YOUNG_OBJECTS", "SyncRequest"]

YOUNG_OBJECTS = 200_000
"""Argument of ``settle_heap`` for a process that syncs.

A listing of 100,000 files makes a million objects, none of which is garbage."""


@dataclass(frozen=True)
class SyncRequest:
    """Arguments of a sync.

    Attributes:
        open: opens the source.
        destination: project, collections and names for its documents.
        until: state of the changes at which the sync ends.
        full: publish every document.
    """

    open: Callable[[Settings], Source]
    destination: Destination
    until: Until = Until.PUBLISHED
    full: bool = False

    async def run(self, settings: Settings, source: Source, show: ShowProgress) -> SyncReport:
        """Sync the opened source; servers are started for it if none run.

        Raises:
            UsageError, SourceBusy, SourceLost, Unavailable: as ``sync_source``.
            ConfigurationError: a server can't be used.
        """
        # without configured servers, the worker ends with this sync
        until = Until.VECTORS if configured(settings) is None else self.until
        async with (
            stack(settings) as running,
            open_database(running) as database,
            open_client(running, store := store_of(database, running)) as client,
        ):
            await check_signing_key(running, self.destination.project, database)
            return await sync_source(
                source,
                self.destination,
                client,
                store,
                sizes=size_limits(running),
                until=until,
                show=show,
                full=self.full,
            )

    async def run_beside(
        self, settings: Settings, source: Source, show: ShowProgress
    ) -> SyncReport:
        """Sync as ``run``, but only with servers that run; they may change between two syncs.

        Raises:
            Unavailable: no servers run, among other reasons.
            UsageError, SourceBusy, SourceLost, ConfigurationError: as ``run``.
        """
        if configured(settings) is None:
            raise Unavailable("no servers run", "start `headrace up`, or set HEADRACE_REDIS_URL")
        return await self.run(settings, source, show)

    async def preview(
        self, settings: Settings, source: Source, show: ShowProgress
    ) -> tuple[SyncReport, Sequence[Step]]:
        """Report what a sync would do; raises as ``run``."""
        async with (
            stack(settings) as running,
            open_store(running) as store,
            open_client(running, store) as client,
        ):
            return await preview_sync(
                source,
                self.destination,
                client,
                store,
                sizes=size_limits(running),
                show=show,
                full=self.full,
            )
