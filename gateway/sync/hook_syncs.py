"""Syncs of repositories that webhooks ask for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from threading import Event
from typing import NoReturn

import structlog

from gateway.sync.followers import mirror_folder
from gateway.sync.registration import Destination
from gateway.sync.request import SyncRequest
from runtime.errors import HeadraceError
from runtime.intervals import Backoff
from runtime.settings import HookSettings, Settings
from sources import open_source
from sources.git_mirror import update_mirror

__all__ = ["HookSyncs", "hook_syncs"]

log = structlog.get_logger(__name__)

_AT_ONCE = 4
"""Most syncs at once: all hooks are synced when a gateway starts."""
_BACKOFF = Backoff(timedelta(seconds=5), timedelta(minutes=10))

Ended = Callable[[], Awaitable[None]]
"""Callback for a delivery whose sync has ended."""


class HookSyncs:
    """Fetches repositories into mirrors under home, and syncs them.

    Each hook is synced once at the start, because no delivery may have arrived while no gateway
    ran, and then for deliveries. Any number of them leads to at most one sync that runs and one
    that waits. A failed sync is repeated with growing delays, or by the next delivery.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hooks: Mapping[str, HookSettings] = settings.gateway.hooks
        self._asked = {name: asyncio.Event() for name in self._hooks}
        self._ended: dict[str, list[Ended]] = {name: [] for name in self._hooks}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def ask(self, name: str, ended: Ended | None = None) -> None:
        """Sync the repository of a hook soon; ``ended`` is awaited unless that sync fails."""
        if ended is not None:
            self._ended[name].append(ended)
        self._asked[name].set()

    async def follow(self, name: str) -> NoReturn:
        """Sync the repository of a hook now, and again whenever it is asked for."""
        asked, failures = self._asked[name], 0
        while True:
            async with self._slots:
                asked.clear()
                ended, self._ended[name] = self._ended[name], []
                is_synced = await self._try(name)
            failures = 0 if is_synced else failures + 1
            if is_synced:
                await _call(ended)
            pause = _BACKOFF.delay(failures - 1).total_seconds() if failures else None
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await asked.wait()

    async def _try(self, name: str) -> bool:
        """Sync the repository of a hook; returns False, and logs the reason, if that fails."""
        try:
            await self._sync(name)
        except Exception as error:  # noqa: BLE001 - a defect must not end the syncs of the hook
            kind = type(error).__name__
            log.warning("hook.failed", hook=name, error=kind, reason=str(error))
            return False
        return True

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


async def _call(ended: Sequence[Ended]) -> None:
    with suppress(HeadraceError):  # a delivery that is not remembered may be repeated
        for callback in ended:
            await callback()


@asynccontextmanager
async def hook_syncs(settings: Settings) -> AsyncIterator[HookSyncs]:
    """Sync the repositories of the settings' hooks until the end of the context."""
    syncs = HookSyncs(settings)
    tasks = [
        asyncio.create_task(syncs.follow(name), name=f"hook {name}")
        for name in settings.gateway.hooks
    ]
    try:
        yield syncs
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
