"""Refresh: syncs of a project's repositories and directories on this machine before a question."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from events.client.operator_client import OperatorClient
from events.names import LogPosition
from events.server.connection import LONGEST_BLOCK
from gateway.clients import check_signing_key, open_client, open_database, store_of
from gateway.failures import one_line
from gateway.progress import show_nothing
from gateway.sync.registration import NAMED, Destination
from gateway.sync.report import SyncReport, describe
from gateway.sync.sync import Until, size_limits, sync_source
from runtime.errors import HeadraceError, UsageError
from runtime.settings import Settings
from sources import Source, SyncOptions, open_source
from sources.git import GitSource
from store.sources import RegisteredSource
from store.store import Store

__all__ = ["LONGEST", "Refresh", "refresh_sources"]

LONGEST = timedelta(seconds=2)
"""Time after which a question no longer waits for its refresh."""


@dataclass(slots=True)
class Refresh:
    """Result of a refresh.

    Attributes:
        sources: names of the sources that were compared with the index.
        published: number of documents that were created, edited or renamed.
        deleted: number of documents that were deleted.
        token: token of the last change that the answer must reflect. None if there is none.
        notes: reasons why the answer may lack a change of a source, one line each.
    """

    sources: list[str] = field(default_factory=list)
    published: int = 0
    deleted: int = 0
    token: str | None = None
    notes: list[str] = field(default_factory=list)


async def refresh_sources(
    settings: Settings,
    project: str,
    longest: timedelta = LONGEST,
    *,
    agent: str | None = None,
    overlay: str | None = None,
) -> Refresh:
    """Sync the sources of a project that this machine has, with the options of their last syncs.

    They are the shared ones and those of the agent, but of overlays only the named one.

    Raises no error: the notes name what was not done. A sync that does not end in time is
    cancelled, and the next one completes it.

    Args:
        settings: settings with running servers.
        project: name of the project. It need not exist.
        longest: longest time to take.
        agent: agent that asks.
        overlay: name of the overlay in which it asks.
    """
    run = _Run(settings, project, agent, overlay)
    try:
        async with asyncio.timeout(longest.total_seconds()):
            await run.run()
    except TimeoutError:
        run.note_timeout(longest)
    except HeadraceError as error:
        run.result.notes.append(one_line(error))
    return run.result


class _Run:
    """One refresh, whose result grows with each source."""

    def __init__(
        self, settings: Settings, project: str, agent: str | None, overlay: str | None
    ) -> None:
        self._settings = settings
        self._project = project
        self._agent = agent
        self._overlay = overlay
        self._sources: dict[str, RegisteredSource] = {}
        self._unfinished: list[str] | None = None
        self._waiting: Callable[[], int] = lambda: 0
        self._tokens = set[str]()
        self.result = Refresh()

    async def run(self) -> None:
        """Sync all sources of this machine at once; a failed one becomes a note.

        Raises:
            HeadraceError: a server can't be used, or the project refuses the changes.
        """
        settings = self._settings
        async with (
            open_database(settings) as database,
            open_client(settings, store := store_of(database, settings)) as client,
        ):
            listed = await store.sources.of_files(self._project, self._agent or "")
            self._sources = {source.id: source for source, _ in listed}
            chosen = self._choose(listed)
            if not chosen:
                return
            await check_signing_key(settings, self._project, database)
            self._unfinished = [source.name for source, _ in chosen]
            for are_overlays in (False, True):  # an overlay is compared with its base
                async with asyncio.TaskGroup() as tasks:
                    for source, options in chosen:
                        if (source.base_id is not None) == are_overlays:
                            tasks.create_task(self._sync(source, options, client, store))
            await self._wait_until_indexed(client)

    async def _wait_until_indexed(self, client: OperatorClient) -> None:
        """Wait until all changes but the last are searchable; the question waits for that one."""
        following = client.following()
        self._waiting = lambda: following.waiting
        await following.add(self._tokens - {self.result.token})
        while following.waiting:
            await following.read(LONGEST_BLOCK)

    def note_timeout(self, longest: timedelta) -> None:
        """Note which sources and changes the time was too short for."""
        limit = f"within {longest.total_seconds():g} s"
        if self._unfinished is None:
            self.result.notes.append(f"the sources could not be read {limit}")
        for name in self._unfinished or ():
            self.result.notes.append(f"{name}: the sync did not end {limit}")
        if waiting := self._waiting():
            self.result.notes.append(f"{waiting:,} changes were not searchable {limit}")

    def _choose(
        self, sources: Sequence[tuple[RegisteredSource, Mapping[str, Any] | None]]
    ) -> list[tuple[RegisteredSource, SyncOptions]]:
        """Sources of this machine. Notes those whose last sync has saved no options, and none."""
        host, notes = socket.gethostname(), self.result.notes
        chosen: list[tuple[RegisteredSource, SyncOptions]] = []
        for source, saved in sources:
            if source.base_id is not None and source.name != self._overlay:
                continue
            options = SyncOptions.from_json(saved)
            if options is None and Path(source.location).is_dir():
                notes.append(f"{source.name}: its options are unknown; run `headrace sync` once")
            elif options is not None and options.host == host:
                chosen.append((source, options))
        if not chosen and not notes:
            notes.append(f"{self._project} has no repository or directory that {host} has synced")
        return chosen

    async def _sync(
        self,
        registered: RegisteredSource,
        options: SyncOptions,
        client: OperatorClient,
        store: Store,
    ) -> None:
        """Sync one source, unless it can't be read or is busy."""
        is_named = registered.key.startswith(NAMED)
        base = self._sources.get(registered.base_id or "")
        destination = Destination(
            self._project,
            options.collections,
            source=registered.name if is_named else None,
            agent=registered.agent or None,
            base=None if base is None else base.name,
        )
        try:
            source = await asyncio.to_thread(self._open, registered, options)
            report = await sync_source(
                source,
                destination,
                client,
                store,
                sizes=size_limits(self._settings),
                until=Until.PUBLISHED,
                show=show_nothing,
                counts_uncommitted=False,
            )
        except HeadraceError as error:
            self.result.notes.append(f"{registered.name}: {one_line(error)}")
        else:
            self._add(registered.name, report)
        assert self._unfinished is not None
        self._unfinished.remove(registered.name)

    def _open(self, registered: RegisteredSource, options: SyncOptions) -> Source:
        """Open a source as its last sync did.

        Raises:
            UsageError: it no longer exists, or another one is in its place.
        """
        source = open_source(
            registered.location,
            options.include,
            [self._settings.home_directory],
            worktree=options.worktree,
            branch=options.branch,
        )
        # a name identifies a source, and its location an overlay; any other one has its own key
        has_key = registered.base_id is None and not registered.key.startswith(NAMED)
        if isinstance(source, GitSource) and has_key:
            source.recall_key(registered.key, registered.commit)
        if source.kind != registered.kind or (has_key and source.key != registered.key):
            raise UsageError(
                f"{registered.location} is another source now", "sync it by `headrace sync`"
            )
        return source

    def _add(self, name: str, report: SyncReport) -> None:
        self.result.sources.append(name)
        self.result.published += report.published
        self.result.deleted += report.deleted
        self._tokens |= report.pending
        if self._tokens:
            self.result.token = max(self._tokens, key=LogPosition.from_token)
        if report.older_than is not None:
            self.result.notes.append(next(describe(report)))
