"""Registration of a synced source: its identity and name and, of an overlay, its base."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, replace

from events.names import Lane
from runtime.errors import UsageError
from sources import Source, SyncOptions
from sources.directory import directory_key
from sources.git import GitSource
from store.sources import RegisteredSource, Sources, source_id_of

__all__ = ["NAMED", "Destination", "Registration", "registration_of"]

NAMED = "name:"
"""Prefix of the key of a source that the user has named."""


@dataclass(frozen=True)
class Destination:
    """Project, collections and names for the documents of a sync.

    Attributes:
        project: name of the project.
        collections: collections of every document. If empty, an overlay has those of its base.
        lane: lane of the changes. If None, bulk for a first or a large sync, else live.
        source: name and identity of the source. If None, those of its repository or directory.
        prefix: prefix of every uri. If None, the prefix of earlier syncs.
        agent: the only agent that may see the source and its documents. If None, all may.
        base: name of the source of which this one is an overlay. If None, a branch and a linked
            work tree are overlays of the source of their repository.
    """

    project: str
    collections: tuple[str, ...] = ()
    lane: Lane | None = None
    source: str | None = None
    prefix: str | None = None
    agent: str | None = None
    base: str | None = None


@dataclass(frozen=True)
class Registration:
    """Identity of a source in a project. ``base``: the source that it is an overlay of, if any."""

    source: Source
    destination: Destination
    key: str
    name: str
    base: RegisteredSource | None

    @property
    def agent(self) -> str:
        """Agent of the source; empty for a shared one."""
        return self.destination.agent or ""

    @property
    def has_copies(self) -> bool:
        """False for the overlay of a work tree: no other place has a later state of it."""
        return self.base is None or _branch_of(self.source) is not None

    async def register(self, sources: Sources) -> RegisteredSource:
        """Register the source; raise UsageError if its name or prefix can't be used."""
        return await sources.register(
            self.destination.project,
            self.key,
            self.name,
            self.source.kind,
            self.source.location,
            self._prefix(),
            agent=self.agent,
            former_key=self._former_key(),
            base_id=None if self.base is None else self.base.id,
        )

    def unregistered(self) -> RegisteredSource:
        """The source in the form in which it would be registered."""
        return RegisteredSource(
            project=self.destination.project,
            id=source_id_of(self.key, self.agent),
            key=self.key,
            name=self.name,
            kind=self.source.kind,
            location=self.source.location,
            uri_prefix=self._prefix() or "",
            revision=0,
            commit=None,
            synced_at=None,
            agent=self.agent,
            base_id=None if self.base is None else self.base.id,
        )

    async def find(self, sources: Sources) -> RegisteredSource | None:
        """Find the source; returns None if a sync would first register it or change its prefix."""
        listed = await sources.list(self.destination.project, self.agent)
        by_key = {source.key: source for source in listed if source.agent == self.agent}
        source = by_key.get(self.key) or await self._former(sources)
        if source is None or self.destination.prefix in (None, source.uri_prefix):
            return source
        return None if source.synced_at is None else await self.register(sources)

    def _former_key(self) -> str | None:
        """Identity before the directory became a repository; None for any other source."""
        has_other_key = self.destination.source is not None or self.base is not None
        if has_other_key or self.source.kind != "git":
            return None
        return directory_key(self.source.location)

    async def _former(self, sources: Sources) -> RegisteredSource | None:
        """Find the source that this one takes over; returns None if there is none."""
        key, host = self._former_key(), socket.gethostname()
        for source, saved in await sources.of_files(self.destination.project, self.agent):
            options = SyncOptions.from_json(saved)
            is_own = source.agent == self.agent and options is not None and options.host == host
            if is_own and source.key == key:
                return source
        return None

    def _prefix(self) -> str | None:
        """Prefix of the uris. An overlay has that of its base, so that its documents replace them.

        Raises:
            UsageError: an overlay is given another prefix.
        """
        if self.base is None:
            return self.destination.prefix
        if self.destination.prefix not in (None, self.base.uri_prefix):
            prefix = self.base.uri_prefix
            state = f"begin with {prefix!r}" if prefix else "have no prefix"
            raise UsageError(
                f"{self.name} is an overlay of {self.base.name}, whose uris {state}",
                "leave out --prefix",
            )
        return self.base.uri_prefix


async def registration_of(
    source: Source, destination: Destination, sources: Sources
) -> Registration:
    """Identify a source; git may need a while for it.

    Raises:
        UsageError: the source can't be read, or the base of an overlay is not registered.
    """
    base = await _base_of(source, destination, sources)
    if base is not None and not destination.collections:
        destination = replace(destination, collections=await _collections_of(base, sources))
    named = destination.source
    branch = _branch_of(source)
    if named is not None:
        return Registration(source, destination, f"{NAMED}{named}", named, base)
    if base is None:
        key, name = await asyncio.to_thread(lambda: (source.key, source.name))
        return Registration(source, destination, key, name, None)
    name = branch or source.location
    kind = "work tree" if branch is None else "branch"
    return Registration(source, destination, f"{kind} {name} of {base.id}", name, base)


async def _collections_of(base: RegisteredSource, sources: Sources) -> tuple[str, ...]:
    """Collections of a base, so that filters by collection pass its overlay too."""
    for source, saved in await sources.of_files(base.project, base.agent):
        options = SyncOptions.from_json(saved)
        if source.id == base.id and options is not None:
            return options.collections
    return ()


def _branch_of(source: Source) -> str | None:
    return source.branch if isinstance(source, GitSource) else None


async def _base_of(
    source: Source, destination: Destination, sources: Sources
) -> RegisteredSource | None:
    """Find the source that a source is an overlay of; returns None if it is not an overlay."""
    project, agent = destination.project, destination.agent or ""

    async def find(**wanted: str) -> RegisteredSource | None:
        listed = await sources.list(project, agent)
        own = [source for source in listed if source.agent == agent and source.base_id is None]
        [(field, value)] = wanted.items()
        return next((source for source in own if getattr(source, field) == value), None)

    if destination.base is not None:
        base = await find(name=destination.base)
        if base is None:
            raise UsageError(
                f"{project} has no source {destination.base!r} that could be a base",
                "sync it first; an overlay can't be a base",
            )
        return base
    if not isinstance(source, GitSource):
        return None
    if source.branch is not None:
        base = await find(key=await asyncio.to_thread(lambda: source.key))
        if base is None:
            raise UsageError(
                f"the repository of branch {source.branch} is not synced into {project}",
                "sync it first without --branch, or name its source with --base",
            )
        return base
    if destination.source is not None or not await asyncio.to_thread(lambda: source.is_linked):
        return None
    base = await find(key=await asyncio.to_thread(lambda: source.key))
    return None if base is None or base.location == source.location else base
