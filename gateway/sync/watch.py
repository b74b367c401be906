"""Watch of a source: its changes in batches, each of which a sync follows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import NoReturn, Protocol, Self

from gateway.failures import one_line
from gateway.progress import progress, show_nothing
from gateway.servers import prepare_home
from gateway.sync.followers import watch_lock
from gateway.sync.report import SyncReport
from gateway.sync.request import YOUNG_OBJECTS, SyncRequest
from runtime.errors import HeadraceError, UsageError
from runtime.intervals import Backoff
from runtime.process_health import settle_heap
from runtime.settings import Settings
from sources import WatchableSource
from sources.files import fingerprint_of
from sources.types import Watched
from sources.watched import alters_folders

__all__ = ["Watcher", "keep_in_step", "watch_sources"]

ShowReport = Callable[[Set[str], SyncReport], None]
"""Function to call after a sync, with the changed paths and the report."""

_QUIET_SECONDS = 0.3
_REPEATED_SECONDS = 0.5
"""Longest wait for files that change again and again, so that they get in within two seconds."""
_LONGEST_SECONDS = 2.0
_FULL_SYNC_EVERY = timedelta(minutes=10)
"""A sync without changes makes good for changes that the operating system did not report."""

_STEP_MS = 50
_POLL_SECONDS = 1.0
_POLL_REST = 5
"""Pause between two comparisons of all files, as a multiple of the time that one takes."""
_MOST_OPENINGS = 5
_BACKOFF = Backoff(timedelta(seconds=1), timedelta(minutes=1), jitter=0)


class Watcher:
    """Changes of a source in batches, from the start of the context on.

    Changes that can't alter the listing do not count. Each source has a thread of its own, because
    reading changes blocks it.

    Args:
        source: source to watch.
        poll: compare the files every second instead of asking the operating system.
        note: called with a line for people.
    """

    def __init__(self, source: WatchableSource, *, poll: bool, note: Callable[[str], None]) -> None:
        self._source = source
        self._poll = poll
        self._note = note
        self._now = asyncio.get_running_loop().time
        self._arrived = asyncio.Event()
        self._paths = set[str]()
        self._first_at = self._grown_at = self._last_at = 0.0
        self._reading: _Reading | None = None

    @property
    def location(self) -> str:
        """Absolute path of the source."""
        return self._source.location

    async def __aenter__(self) -> Self:
        """Begin to watch; raises UsageError as ``open``."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the thread."""
        await self._close()

    async def open(self) -> None:
        """Watch the folders that the source has now, instead of those it had.

        A change in between is not reported, so a sync must follow. Two sets of folders at once
        would reach the limit of the operating system earlier.

        Raises:
            UsageError: the source no longer exists, or can't be read.
        """
        await self._close()
        self._reading = _Reading(*await self._reader(), self._add)

    async def _close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            await reading.close()

    async def batch(self) -> Set[str]:
        """Wait for changes, and for 300 ms without further ones; returns their paths.

        It waits at most 0.8 s for further changes of the same files, and 2 s for any. Returns no
        paths after ten minutes without changes.

        Raises:
            UsageError: the source no longer exists, or can't be read.
        """
        await self._wait(_FULL_SYNC_EVERY.total_seconds())
        while self._paths and (seconds := self._due_at() - self._now()) > 0:
            await self._wait(seconds)
        paths, self._paths = self._paths, set()
        watched = None if self._reading is None else self._reading.watched
        if not paths or watched is None or any(alters_folders(watched, path) for path in paths):
            await self.open()
        return paths

    async def _wait(self, seconds: float) -> None:
        """Wait for changes that have not been waited for."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        self._arrived.clear()

    def _due_at(self) -> float:
        repeated_at = max(self._first_at + _REPEATED_SECONDS, self._grown_at + _QUIET_SECONDS)
        latest_at = self._first_at + _LONGEST_SECONDS
        return min(self._last_at + _QUIET_SECONDS, repeated_at, latest_at)

    def _add(self, paths: Set[str]) -> None:
        self._last_at = self._now()
        if not self._paths:
            self._first_at = self._last_at
        if not paths <= self._paths:
            self._grown_at = self._last_at
        self._paths |= paths
        self._arrived.set()

    async def _reader(self) -> tuple[_Reader, Watched]:
        """Reader of the current folders.

        They are listed again, because a folder may be new since the first time and not be watched.
        """
        reader, watched = None, await asyncio.to_thread(self._source.watched)
        for _ in range(_MOST_OPENINGS):
            reader = await asyncio.to_thread(self._reader_of, watched.folders)
            before, watched = watched, await asyncio.to_thread(self._source.watched)
            if reader is not None and watched.folders == before.folders:
                return reader, watched
        return reader or _Comparisons(watched.folders), watched

    def _reader_of(self, folders: frozenset[str]) -> _Reader | None:
        """Open the reader of folders. Returns None if one of them no longer exists."""
        if self._poll:
            return _Comparisons(folders)
        try:
            return _Notifications(folders)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._poll = True
            self._note(
                f"{self.location}: {len(folders):,} folders can't be watched ({error}); all files "
                "are compared every second instead; to avoid that, raise "
                "fs.inotify.max_user_watches and fs.inotify.max_user_instances with `sysctl`"
            )
            return _Comparisons(folders)


async def watch_sources(
    settings: Settings,
    requests: Sequence[SyncRequest],
    report: ShowReport,
    note: Callable[[str], None],
    *,
    poll: bool,
) -> None:
    """Sync each source with running servers, then again after each batch of its changes.

    Args:
        settings: settings of this process.
        requests: a request for each source.
        report: called after each sync with the changed paths and the report.
        note: called with a line for people.
        poll: compare the files every second instead of asking the operating system.

    Raises:
        UsageError: a source can't be watched, then nothing is synced; or none exists any more.
        HeadraceError: the first sync of a source failed.
    """
    settle_heap(YOUNG_OBJECTS)
    prepare_home(settings)
    opened = []
    for request in requests:
        source = request.open(settings)
        if not isinstance(source, WatchableSource):
            raise UsageError(
                f"{source.location} can't be watched", "run `headrace sync` on a timer"
            )
        opened.append((request, source))
    async with AsyncExitStack() as exits:
        watches: list[tuple[Watcher, Callable[[], Awaitable[SyncReport]]]] = []
        for request, source in opened:
            lock = watch_lock(settings, request.destination.project, source.location)
            with suppress(UsageError):
                lock.acquire()
            exits.callback(lock.release)
            watcher = await exits.enter_async_context(Watcher(source, poll=poll, note=note))
            with progress() as show:
                report(frozenset(), await request.run_beside(settings, source, show))
            note(f"watching {source.location}")
            watches.append((watcher, partial(request.run_beside, settings, source, show_nothing)))
        async with asyncio.TaskGroup() as tasks:
            for watcher, sync in watches:
                tasks.create_task(_until_gone(watcher, sync, report, note))
    raise UsageError("no source is left to watch", "start again with sources that exist")


async def _until_gone(
    watcher: Watcher,
    sync: Callable[[], Awaitable[SyncReport]],
    report: ShowReport,
    note: Callable[[str], None],
) -> None:
    """Watch a source until it no longer exists; the watch of the others continues."""
    try:
        await keep_in_step(watcher, sync, report, note)
    except UsageError as error:
        note(f"{one_line(error)}; its documents stay in the index")


async def keep_in_step(
    watcher: Watcher,
    sync: Callable[[], Awaitable[SyncReport]],
    report: ShowReport,
    note: Callable[[str], None],
) -> NoReturn:
    """Sync after each batch of changes, until cancelled.

    A failed sync is repeated with growing delays; changes that arrive in between are part of it.

    Args:
        watcher: open watcher of the source.
        sync: one sync of the whole source.
        report: called after each sync with the changed paths and the report.
        note: called with a line for people about a sync that failed.

    Raises:
        UsageError: the source no longer exists, or can't be read.
    """
    while True:
        paths = await watcher.batch()
        failures = 0
        while True:
            try:
                report(paths, await sync())
                break
            except HeadraceError as error:
                delay = _BACKOFF.delay(failures)
                note(f"{watcher.location}: {one_line(error)}; next try in {delay.seconds} s")
            failures += 1
            await asyncio.sleep(delay.total_seconds())
            await watcher.open()


class _Reader(Protocol):
    """Changes in folders; made and used in threads."""

    def read(self, closed: Event) -> Set[str]:
        """Wait for changes; returns their paths, or none if ``closed`` was set first."""


class _Reading:
    """Thread that passes changes on to the event loop until it is closed."""

    def __init__(self, reader: _Reader, watched: Watched, add: Callable[[Set[str]], None]) -> None:
        self.watched = watched
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        self._add = add
        self._closed = Event()
        self._thread = Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """End the thread and wait for its end."""
        self._closed.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._closed.is_set():
            paths = {path for path in self._reader.read(self._closed) if self._counts(path)}
            if paths:
                self._loop.call_soon_threadsafe(self._add, paths)

    def _counts(self, path: str) -> bool:
        try:
            return not self.watched.is_noise(path)
        except UsageError:
            # the sync that follows raises the same error, and it is reported
            return True


class _Notifications:
    """Changes that the operating system reports.

    Raises:
        FileNotFoundError: a folder no longer exists.
        OSError: the limit of watched folders is reached.
    """

    def __init__(self, folders: frozenset[str]) -> None:
        # imported here, because only this command needs it
        from watchfiles._rust_notify import (  # noqa: PLC0415
            RustNotify,
            WatchfilesRustInternalError,
        )

        self._folders = folders
        self._error = WatchfilesRustInternalError
        existing = [folder for folder in folders if Path(folder).is_dir()]
        try:
            # to ignore missing permissions would also ignore the limit of watched folders
            self._notify = RustNotify(existing, False, False, 0, False, False)
        except WatchfilesRustInternalError as error:
            raise OSError(str(error)) from error

    def read(self, closed: Event) -> Set[str]:
        """Wait for changes; an error of the system counts as a change of every folder."""
        try:
            changes = self._notify.watch(_STEP_MS, _STEP_MS, 0, closed)
        except self._error:
            closed.wait(_POLL_SECONDS)
            return self._folders
        return {path for _, path in changes} if isinstance(changes, set) else set()


class _Comparisons:
    """Changes between listings of the folders, for file systems that report none."""

    def __init__(self, folders: frozenset[str]) -> None:
        self._folders = folders
        self._files: Mapping[str, str] = {}
        self._pause = 0.0
        self._compare()

    def read(self, closed: Event) -> Set[str]:
        """Wait for changes; files are compared by their times, size and inode."""
        while not closed.wait(self._pause):
            if paths := self._compare():
                return paths
        return set()

    def _compare(self) -> Set[str]:
        began_at = monotonic()
        before, self._files = self._files, _fingerprints(self._folders)
        self._pause = max(_POLL_SECONDS, _POLL_REST * (monotonic() - began_at))
        return {path for path, _ in before.items() ^ self._files.items()}


def _fingerprints(folders: Set[str]) -> dict[str, str]:
    """Fingerprint of each file in the folders by its path; that of a folder is empty."""
    fingerprints: dict[str, str] = {}
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            fingerprints[folder] = ""
            for entry in entries:
                with suppress(OSError):
                    is_folder = entry.is_dir(follow_symlinks=False)
                    status = entry.stat(follow_symlinks=False)
                    fingerprints[entry.path] = "" if is_folder else fingerprint_of(status)
    return fingerprints
