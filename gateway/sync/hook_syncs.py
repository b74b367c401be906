"""Syncs of repositories that webhooks ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from threading import Event

import structlog

from gateway.sync.followers import mirror_folder
from gateway.sync.request import SyncRequest
from gateway.sync.sync import Destination
from runtime.errors import HeadraceError, Unavailable
from runtime.settings import HookSettings, Settings
from sources import open_source
from sources.git_mirror import update_mirror

__all__ = ["HookSyncs", "hook_syncs"]

log = structlog.get_logger(__name__)

Failed = Callable[[], Awaitable[None]]
"""Callback for a delivery whose sync has failed."""


class HookSyncs:
    """Fetches repositories into mirrors under home, and syncs them.

    Each hook is synced by one task, which runs again if it was asked while it ran. So any number of
    deliveries leads to at most one sync that runs and one that waits.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hooks: Mapping[str, HookSettings] = settings.gateway.hooks
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: dict[str, list[Failed]] = {}

    def ask(self, name: str, failed: Failed | None = None) -> None:
        """Sync the repository of a hook soon; ``failed`` is awaited if that is not possible."""
        self._asked.setdefault(name, []).extend([failed] if failed else [])
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(self._run(name), name=f"hook {name}")

    async def close(self) -> None:
        """Stop the syncs; their deliveries count as failed, so that they may be repeated."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for callbacks in self._asked.values():
            await _fail(callbacks)

    async def _run(self, name: str) -> None:
        try:
            while name in self._asked:
                callbacks = self._asked.pop(name)
                is_synced = False
                try:
                    await self._sync(name)
                    is_synced = True
                except (HeadraceError, OSError) as error:
                    kind = type(error).__name__
                    log.warning("hook.failed", hook=name, error=kind, reason=str(error))
                finally:
                    if not is_synced:
                        await _fail(callbacks)
        finally:
            del self._tasks[name]

    async def _sync(self, name: str) -> None:
        hook = self._hooks[name]
        mirror = mirror_folder(self._settings, name)
        stop = Event()
        try:
            await asyncio.to_thread(update_mirror, mirror, hook.repository, stop)
        finally:
            stop.set()  # the process waits for its threads at its end
        destination = Destination(hook.project, hook.collections, prefix=hook.prefix)
        request = SyncRequest(lambda _: open_source(mirror), destination)
        source = await asyncio.to_thread(request.open, self._settings)
        report = await request.run_beside(self._settings, source, lambda *_, **__: None)
        log.info(
            "hook.synced",
            hook=name,
            commit=report.commit,
            published=report.published,
            deleted=report.deleted,
        )


async def _fail(callbacks: Sequence[Failed]) -> None:
    with suppress(Unavailable):
        for failed in callbacks:
            await failed()


@asynccontextmanager
async def hook_syncs(settings: Settings) -> AsyncIterator[HookSyncs]:
    """Provide the syncs of the hooks of the settings, and stop them at the end."""
    syncs = HookSyncs(settings)
    try:
        yield syncs
    finally:
        await syncs.close()
