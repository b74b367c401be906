"""Sync of a source: publish its changes and follow them until they are searchable."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, TypeVar

from pydantic import ValidationError

from events.client.operator_client import OperatorClient
from events.models import DocumentChanged, first_problem
from events.names import Lane
from gateway.progress import ShowProgress
from gateway.sync.batch import SyncBatch
from gateway.sync.ownership import Lease, check_owners, hold_lease
from gateway.sync.publisher import Outcomes, publish_changes
from gateway.sync.report import SyncReport
from processors.chunking.strategies import AUTO, SEMANTIC
from runtime.errors import UsageError
from runtime.settings import Settings
from sources import (
    Basis,
    IndexedDocument,
    Listing,
    RemoteSource,
    SizeLimits,
    Source,
    State,
    Sync,
    SyncOptions,
    WatchableSource,
)
from sources.comparison import Step
from sources.directory import directory_key
from store.documents.contents import MAX_CONTENT_BYTES
from store.sources import LeasedSource, RegisteredSource, source_id_of
from store.store import Store

__all__ = ["NAMED", "Destination", "Until", "preview_sync", "size_limits", "sync_source"]

T = TypeVar("T")

NAMED = "name:"
"""Prefix of the key of a source that the user has named."""

_LIVE_CHANGES = 100
"""Most changes of a small sync, which is processed before bulk imports."""


class Until(Enum):
    """State of the published changes at which a sync returns."""

    PUBLISHED = auto()
    KEYWORDS = auto()
    VECTORS = auto()


@dataclass(frozen=True)
class Destination:
    """Project, collections and names for the documents of a sync.

    Attributes:
        project: name of the project.
        collections: collections of every document.
        lane: lane of the changes. If None, bulk for a first or a large sync, else live.
        source: name and identity of the source. If None, those of its repository or directory.
        prefix: prefix of every uri. If None, the prefix of earlier syncs.
        agent: the only agent that may see the source and its documents. If None, all may.
    """

    project: str
    collections: tuple[str, ...] = ()
    lane: Lane | None = None
    source: str | None = None
    prefix: str | None = None
    agent: str | None = None


def size_limits(settings: Settings) -> SizeLimits:
    """Read from the settings how large the files of a source may be."""
    return SizeLimits(settings.max_document_bytes, settings.max_binary_bytes)


@dataclass(frozen=True)
class _Job:
    """One sync of a source into a project; with ``full``, every document is published.

    Without ``counts_uncommitted``, uncommitted files count as 0.
    """

    source: Source
    destination: Destination
    client: OperatorClient
    store: Store
    sizes: SizeLimits
    full: bool
    show: ShowProgress
    counts_uncommitted: bool = True

    def options(self) -> SyncOptions | None:
        """Options to keep. Returns None if the source is not in files of this machine."""
        if not isinstance(self.source, WatchableSource):
            return None
        collections = self.destination.collections
        return replace(self.source.options, host=socket.gethostname(), collections=collections)

    def uncommitted(self, listing: Listing) -> int:
        """Count the files that differ from the listed commit."""
        return self.source.uncommitted(listing) if self.counts_uncommitted else 0

    def key(self) -> str:
        """Identity of the source; git may need a while to find it."""
        name = self.destination.source
        return self.source.key if name is None else f"{NAMED}{name}"

    async def register(self) -> RegisteredSource:
        """Register the source; raise UsageError if its name or prefix can't be used."""
        source, destination = self.source, self.destination
        key = await asyncio.to_thread(self.key)
        return await self.store.sources.register(
            destination.project,
            key,
            destination.source or source.name,
            source.kind,
            source.location,
            destination.prefix,
            agent=destination.agent or "",
            former_key=self.former_key(),
        )

    def former_key(self) -> str | None:
        """Identity before the directory became a repository; None for any other source."""
        if self.destination.source is not None or self.source.kind != "git":
            return None
        return directory_key(self.source.location)

    async def unregistered(self) -> RegisteredSource:
        """The source in the form in which it would be registered."""
        source, destination = self.source, self.destination
        key = await asyncio.to_thread(self.key)
        agent = destination.agent or ""
        return RegisteredSource(
            project=destination.project,
            id=source_id_of(key, agent),
            key=key,
            name=destination.source or source.name,
            kind=source.kind,
            location=source.location,
            uri_prefix=destination.prefix or "",
            revision=0,
            commit=None,
            synced_at=None,
            agent=agent,
        )

    async def find(self) -> RegisteredSource | None:
        """Find the source; returns None if a sync would first register it or change its prefix."""
        keys = await asyncio.to_thread(self.key), self.former_key()
        agent = self.destination.agent or ""
        listed = await self.store.sources.list(self.destination.project, agent)
        sources = {source.key: source for source in listed if source.agent == agent}
        source = next((sources[key] for key in keys if key in sources), None)
        if source is None or self.destination.prefix in (None, source.uri_prefix):
            return source
        return None if source.synced_at is None else await self.register()


@dataclass(frozen=True)
class _Comparison:
    """Content of a source and its differences from the index.

    ``saved`` is the state before the sync. ``sync`` is None if the indexed commit is newer.
    """

    listing: Listing
    saved: State
    sync: Sync | None = None
    is_new: bool = False
    uncommitted: int = 0


async def sync_source(
    source: Source,
    destination: Destination,
    client: OperatorClient,
    store: Store,
    *,
    sizes: SizeLimits,
    until: Until,
    show: ShowProgress,
    full: bool = False,
    counts_uncommitted: bool = True,
) -> SyncReport:
    """Publish the differences between a source and the index, and wait for ``until``.

    After an interrupted sync, the next one publishes again what may be missing. With ``full``,
    every document is published. Without ``counts_uncommitted``, the report counts no uncommitted
    files, which saves the time to compare the work tree.

    Raises:
        UsageError: the source can't be read, the project's name can't be used, or a document
            belongs to another source; nothing was published.
        SourceBusy: another sync of the source is running.
        SourceLost: another sync has taken over, because this one did not renew its lease.
        Unavailable: a server can't be reached, or there is no progress; the message gives the
            reason.
    """
    _check(destination)
    limits = sizes.within(MAX_CONTENT_BYTES)
    job = _Job(source, destination, client, store, limits, full, show, counts_uncommitted)
    registered = await job.register()
    report = SyncReport(registered.name, registered.location, source.kind)
    outcomes = None
    if until is not Until.PUBLISHED:
        report.indexed = 0
        following = client.following(vectors=until is Until.VECTORS)
        outcomes = Outcomes(client, following, report, show)
    async with hold_lease(store.sources, registered, client, show) as lease:
        comparison = await _compare(job, registered, lease)
        report.commit = comparison.listing.commit
        if comparison.sync is None:
            report.older_than = lease.leased.commit
            return report
        report.lane = _lane(comparison, destination)
        if outcomes is not None:
            await outcomes.begin(comparison.sync, registered.uri_prefix)
        batch = SyncBatch(store.batches, registered, comparison.sync.report)
        await publish_changes(
            comparison.sync,
            lease,
            client,
            destination.collections,
            report.lane,
            outcomes,
            show,
            batch,
        )
        await _finish(lease, comparison)
        await batch.end()
        report.batch = batch.id
        pending = comparison.sync.state().pending
        report.pending = frozenset(token for token, _ in pending.values())
    report.copy_counts(comparison.sync.report, registered.uri_prefix)
    report.uncommitted = comparison.uncommitted
    if outcomes is not None:
        await outcomes.wait()
    return report


async def preview_sync(
    source: Source,
    destination: Destination,
    client: OperatorClient,
    store: Store,
    *,
    sizes: SizeLimits,
    show: ShowProgress,
    full: bool = False,
) -> tuple[SyncReport, Sequence[Step]]:
    """Report what a sync would do. Nothing is published, and a new source is not registered.

    Raises:
        UsageError, SourceBusy, Unavailable: as ``sync_source``.
    """
    _check(destination)
    job = _Job(source, destination, client, store, sizes.within(MAX_CONTENT_BYTES), full, show)
    registered = await job.find()
    if registered is None:
        registered = await job.unregistered()
        report = SyncReport(registered.name, registered.location, source.kind)
        comparison = await _compare(job, registered, read_all=True)
    else:
        report = SyncReport(registered.name, source.location, source.kind)
        async with hold_lease(store.sources, registered, client, show) as lease:
            comparison = await _compare(job, registered, lease, read_all=True)
            report.older_than = None if comparison.sync else lease.leased.commit
    report.commit = comparison.listing.commit
    if comparison.sync is None:
        return report, ()
    steps = comparison.sync.steps
    report.copy_counts(comparison.sync.report, registered.uri_prefix)
    report.deleted = sum(step.change == "delete" for step in steps)
    report.published = len(steps) - report.deleted
    steps = [step.below(registered.uri_prefix) for step in steps]
    report.uncommitted = comparison.uncommitted
    if report.published:
        live = await store.live(destination.project)
        strategy = live.recipe.strategy_of(destination.collections) if live else AUTO
        report.cut_by_topic = strategy == SEMANTIC
    return report, steps


def _check(destination: Destination) -> None:
    """Raise UsageError if the events would be rejected."""
    try:
        DocumentChanged.model_validate(
            {
                "type": DocumentChanged.TYPE,
                "data": {
                    "project": destination.project,
                    "agent": destination.agent,
                    "collections": destination.collections,
                    "uri": f"{destination.prefix or ''}any",
                    "change": "delete",
                },
            }
        )
    except ValidationError as error:
        raise UsageError(first_problem(error)) from None


async def _compare(
    job: _Job, registered: RegisteredSource, lease: Lease | None = None, *, read_all: bool = False
) -> _Comparison:
    """Compare a source with the index; raise UsageError if a document belongs to another source.

    Without a lease the source is not registered, and the index contains nothing of it. Git and
    Postgres work at the same time: each takes half a second for 100,000 files.
    """
    leased = None if lease is None else lease.leased
    state = State() if leased is None else State.from_json(leased.state)
    saved = replace(state, pending=dict(state.pending), rejected=dict(state.rejected))
    state.options = job.options()
    async with _concurrently(_read_index(job, leased, state)) as index_read:
        listing = await _list(job, state)
        if leased is not None and leased.commit is not None and not job.full:
            is_older = job.source.is_older
            if await asyncio.to_thread(is_older, listing, leased.commit, state.committed_at):
                return _Comparison(listing, saved)
        async with _concurrently(asyncio.to_thread(job.uncommitted, listing)) as count:
            lost, indexed = await index_read
            basis = Basis.of(state, indexed, job.destination.collections, lost, full=job.full)
            sync = await asyncio.to_thread(
                lambda: Sync(job.source, listing, basis, job.sizes, read_all=read_all)
            )
            source = registered if leased is None else leased.source
            await check_owners(sync, indexed, source, job.store)
            return _Comparison(listing, saved, sync, not indexed, await count)


async def _list(job: _Job, state: State) -> Listing:
    """List a source; a cancelled listing of a remote source ends soon."""
    source = job.source
    if not isinstance(source, RemoteSource):
        return await asyncio.to_thread(source.list, job.sizes)

    def show(count: int) -> None:
        job.show("listing", count, 0)

    source.recall(state.memory, show, full=job.full)
    try:
        return await asyncio.to_thread(source.list, job.sizes)
    except asyncio.CancelledError:
        source.stop()
        raise


async def _read_index(
    job: _Job, leased: LeasedSource | None, state: State
) -> tuple[frozenset[str], dict[str, IndexedDocument]]:
    """Settle pending changes; return the uris of lost ones, and the documents in the index."""
    if leased is None:
        return frozenset(), {}
    lost = await _resolve(state, leased.source.project, job)
    contents = await job.store.sources.contents(leased.source)
    return lost, _indexed_documents(contents, leased.source.uri_prefix)


@asynccontextmanager
async def _concurrently(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run a coroutine beside the block, and cancel it at the end of the block."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _indexed_documents(
    contents: Mapping[str, tuple[str, tuple[str, ...]]], prefix: str
) -> dict[str, IndexedDocument]:
    start = len(prefix)
    return {uri[start:]: IndexedDocument(*document) for uri, document in contents.items()}


async def _resolve(state: State, project: str, job: _Job) -> frozenset[str]:
    """Settle pending changes of earlier syncs; returns the uris of changes lost from the log."""
    tokens = {token for token, _ in state.pending.values()}
    if not tokens:
        return frozenset()
    handled = await job.store.sources.handled(project, tokens)
    present = await job.client.present(tokens - handled.keys())
    rejected = {
        token: change.reason or "the reason is unknown"
        for token, change in handled.items()
        if change.outcome == "rejected"
    }
    return state.resolve(handled.keys() - rejected.keys(), rejected, present)


def _lane(comparison: _Comparison, destination: Destination) -> Lane:
    changes = 0 if comparison.sync is None else comparison.sync.total
    is_small = not comparison.is_new and changes <= _LIVE_CHANGES
    return destination.lane or (Lane.LIVE if is_small else Lane.BULK)


async def _finish(lease: Lease, comparison: _Comparison) -> None:
    if comparison.sync is None:
        return
    state = comparison.sync.state()
    commit = comparison.listing.commit
    if not comparison.sync.position and state == comparison.saved:
        await lease.finish(None, commit)
    else:
        await lease.finish(await asyncio.to_thread(state.to_json), commit)
