"""Backend of `headrace mcp`, opened by the first call: a gateway, servers, or a new `up`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.mcp.backends import Access, Backend, KnowledgeBackend, Progress, Refreshed

if TYPE_CHECKING:
    from runtime.settings import Settings

__all__ = ["Opener"]

_REPORT_SECONDS = 0.9
_POLL_SECONDS = 0.1
_LONGEST_START_SECONDS = 180.0
_SLOW_MODULES = (
    "gateway.session",
    "gateway.knowledge",
    "gateway.clients",
    "gateway.processes.background",
    "processors.deployment",
    "store.views.batches",
    "store.views.listing",
)
_UP = ("--workers", "1", "--until-idle")


class Opener:
    """Opens the backend when it is first needed, and again after an `up` has ended.

    The order is: the gateway at ``HEADRACE_URL``, configured servers, those of a running `up`. If
    there are none, `up` starts as a process of its own, which ends after ``idle`` (ISO 8601).
    ``text_only``: see ``Access``.
    """

    def __init__(
        self, project: str | None, *, may_publish: bool, idle: str, text_only: bool = False
    ) -> None:
        self._project = project
        self._may_publish = may_publish
        self._text_only = text_only
        self._idle = idle
        self._stage = "loading"
        self._backend: asyncio.Future[Backend] | None = None
        self._starting: asyncio.Future[None] = asyncio.Future()
        self._holder: asyncio.Task[None] | None = None
        self._end = asyncio.Event()
        self._is_current: Callable[[], bool] = lambda: True

    @property
    def access(self) -> Access:
        """Access of the user of this process, who needs no API key for servers of their own."""
        return Access(self._project, self._may_publish, self.open, self._text_only)

    async def open(self, report: Progress) -> Backend:
        """Return the backend; while it is being opened, report the stage.

        It is reported regularly, and at once when servers are started.

        Raises:
            HeadraceError: it can't be opened; the next call tries again.
        """
        if self._backend is not None and self._backend.done() and not self._usable():
            await self.close()
        if self._backend is None:
            self._end = asyncio.Event()
            loop = asyncio.get_running_loop()
            self._backend, self._starting = loop.create_future(), loop.create_future()
            self._holder = asyncio.create_task(self._hold(self._backend, self._end))
        opened = self._backend
        awaited: set[asyncio.Future[Any]] = {opened, self._starting}
        while not opened.done():
            _, awaited = await asyncio.wait(
                awaited, timeout=_REPORT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not opened.done():
                await report(f"headrace: {self._stage}")
        return opened.result()

    async def close(self) -> None:
        """Close the connections. An `up` that was started stays, and ends by itself."""
        if self._holder is not None:
            self._end.set()
            await asyncio.wait({self._holder})
        self._backend = self._holder = None

    def _usable(self) -> bool:
        assert self._backend is not None
        return (
            not self._backend.cancelled()
            and self._backend.exception() is None
            and self._is_current()
        )

    async def _hold(self, opened: asyncio.Future[Backend], end: asyncio.Event) -> None:
        """Open the backend, and keep it until ``end`` is set. Connections belong to this task."""
        try:
            async with self._connected() as backend:
                opened.set_result(backend)
                await end.wait()
        except Exception as error:  # noqa: BLE001  # every caller that waits receives it
            if not opened.done():
                opened.set_exception(error)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Backend]:
        self._stage = "loading"
        url = os.environ.get("HEADRACE_URL", "")
        if url:
            remote = await asyncio.to_thread(import_module, "gateway.mcp.remote")
            async with remote.open_remote(url, os.environ.get("HEADRACE_API_KEY", "")) as backend:
                yield backend
            return
        for name in _SLOW_MODULES:
            await asyncio.to_thread(import_module, name)
        async with self._connected_here() as backend:
            yield backend

    @asynccontextmanager
    async def _connected_here(self) -> AsyncIterator[Backend]:
        from gateway.auth.callers import Caller, Right  # noqa: PLC0415  # see _SLOW_MODULES
        from gateway.clients import open_gateway, projects_of  # noqa: PLC0415
        from gateway.knowledge import Knowledge  # noqa: PLC0415
        from gateway.servers import announced_pid, stack  # noqa: PLC0415
        from gateway.session import linked_work_tree, load_settings  # noqa: PLC0415
        from store.views.batches import Batches  # noqa: PLC0415
        from store.views.listing import Listing  # noqa: PLC0415

        settings = load_settings(quiet=True)
        overlay = linked_work_tree(Path.cwd())
        running = await self._running(settings)
        if not settings.redis_url:
            pid = announced_pid(settings)
            self._is_current = lambda: announced_pid(settings) == pid
        self._stage = "connecting"
        rights = {Right.ASK, Right.READ} | ({Right.PUBLISH} if self._may_publish else set())
        caller = Caller("local", self._project, None, frozenset(rights))
        async with stack(running) as ready, open_gateway(ready) as (client, database):
            batches = Batches(database, projects_of(database, ready))
            knowledge = Knowledge(client, Listing(database), batches, ready.gateway)

            async def refresh(project: str) -> Refreshed:
                module = await asyncio.to_thread(import_module, "gateway.sync.refresh")
                refreshed = await module.refresh_sources(ready, project, overlay=overlay)
                return Refreshed(refreshed.token, tuple(refreshed.notes))

            yield KnowledgeBackend(caller, knowledge, refresh, overlay)

    async def _running(self, settings: Settings) -> Settings:
        """Settings with running servers; starts `up` if there are none.

        Raises:
            ConfigurationError: `up` can't start.
            Unavailable: it takes too long.
        """
        from gateway.processes.background import detach  # noqa: PLC0415  # see _SLOW_MODULES
        from gateway.servers import configured, owner_lock, prepare_home  # noqa: PLC0415
        from runtime.errors import Unavailable, UsageError  # noqa: PLC0415

        try:
            async with asyncio.timeout(_LONGEST_START_SECONDS):
                while (running := configured(settings)) is None:
                    self._stage = "starting the servers and a worker; this is done once"
                    if not self._starting.done():
                        self._starting.set_result(None)
                    lock = owner_lock(prepare_home(settings))
                    if lock.owner() is not None:  # another editor starts them
                        await asyncio.sleep(_POLL_SECONDS)
                        continue
                    try:
                        await detach(settings, [*_UP, self._idle], quiet=True)
                    except UsageError:
                        if lock.owner() is None:
                            raise
                return running
        except TimeoutError:
            raise Unavailable(
                f"`headrace up` is not ready after {_LONGEST_START_SECONDS:.0f} s",
                "see `headrace logs`",
            ) from None
