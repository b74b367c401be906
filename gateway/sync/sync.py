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
from gateway.sync.registration import Destination, Registration, registration_of
from gateway.sync.report import SyncReport
from processors.chunking.strategies import AUTO, SEMANTIC
from runtime.errors import UsageError
from runtime.failpoints import failpoint
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
from sources.comparison import Step, expected_of, hashes_of
from sources.git import GitSource
from store.documents.contents import MAX_CONTENT_BYTES
from store.sources import LeasedSource, RegisteredSource
from store.store import Store

__all__ = ["Until", "preview_sync", "size_limits", "sync_source"]

T = TypeVar("T")

_LIVE_CHANGES = 100
"""Most changes of a small sync, which is processed before bulk imports."""


class Until(Enum):
    """State of the published changes at which a sync returns."""

    PUBLISHED = auto()
    KEYWORDS = auto()
    VECTORS = auto()


def size_limits(settings: Settings) -> SizeLimits:
    """Read from the settings how large the files of a source may be."""
    return SizeLimits(settings.max_document_bytes, settings.max_binary_bytes)


@dataclass(frozen=True)
class _Job:
    """One sync of a source into a project; with ``full``, every document is published.

    Without ``counts_uncommitted``, uncommitted files count as 0.
    """

    registration: Registration
    client: OperatorClient
    store: Store
    sizes: SizeLimits
    full: bool
    show: ShowProgress
    counts_uncommitted: bool = True

    @property
    def source(self) -> Source:
        """Origin of the documents."""
        return self.registration.source

    @property
    def destination(self) -> Destination:
        """Project, collections and names for the documents."""
        return self.registration.destination

    def options(self) -> SyncOptions | None:
        """Options to keep. Returns None if the source is not in files of this machine."""
        if not isinstance(self.source, WatchableSource):
            return None
        collections = self.destination.collections
        return replace(self.source.options, host=socket.gethostname(), collections=collections)

    def uncommitted(self, listing: Listing) -> int:
        """Count the files that differ from the listed commit."""
        return self.source.uncommitted(listing) if self.counts_uncommitted else 0


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
    registration = await registration_of(source, destination, store.sources)
    job = _Job(registration, client, store, limits, full, show, counts_uncommitted)
    first_listing = None
    if not await store.has_project(destination.project):
        # before registration, which creates the project: a source that can't be read makes none
        first_listing = await _list(job, State())
    registered = await registration.register(store.sources)
    report = _report(registration, registered.name)
    outcomes = None
    if until is not Until.PUBLISHED:
        report.indexed = 0
        following = client.following(vectors=until is Until.VECTORS)
        outcomes = Outcomes(client, following, report, show)
    async with hold_lease(store.sources, registered, client, show) as lease:
        comparison = await _compare(job, registered, lease, first_listing=first_listing)
        report.commit = comparison.listing.commit
        if comparison.sync is None:
            report.older_than = lease.leased.commit
            return report
        report.lane = _lane(comparison, job.destination)
        if outcomes is not None:
            await outcomes.begin(comparison.sync, registered.uri_prefix)
        batch = SyncBatch(store.batches, registered, comparison.sync.report)
        await publish_changes(
            comparison.sync,
            lease,
            client,
            job.destination.collections,
            report.lane,
            outcomes,
            show,
            batch,
        )
        await _finish(lease, comparison)
        failpoint("sync.finished")
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
    registration = await registration_of(source, destination, store.sources)
    job = _Job(registration, client, store, sizes.within(MAX_CONTENT_BYTES), full, show)
    registered = await registration.find(store.sources)
    report = _report(registration, registered.name if registered else registration.name)
    if registered is None:
        registered = registration.unregistered()
        comparison = await _compare(job, registered, read_all=True)
    else:
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
        strategy = live.recipe.strategy_of(job.destination.collections) if live else AUTO
        report.cut_by_topic = strategy == SEMANTIC
    return report, steps


def _report(registration: Registration, name: str) -> SyncReport:
    source, base = registration.source, registration.base
    return SyncReport(name, source.location, source.kind, base=None if base is None else base.name)


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
    job: _Job,
    registered: RegisteredSource,
    lease: Lease | None = None,
    *,
    read_all: bool = False,
    first_listing: Listing | None = None,
) -> _Comparison:
    """Compare a source with the index; raise UsageError if a document belongs to another source.

    Without a lease the source is not registered, and the index contains nothing of it. Git and
    Postgres work at the same time: each takes half a second for 100,000 files. ``first_listing`` is
    used if no other sync has finished since.
    """
    leased = None if lease is None else lease.leased
    state = State() if leased is None else State.from_json(leased.state)
    saved = replace(state, pending=dict(state.pending), rejected=dict(state.rejected))
    state.options = job.options()
    async with _concurrently(_read_index(job, leased, state)) as index_read:
        if first_listing is not None and leased is not None and not leased.state:
            listing = first_listing
        else:
            listing = await _list(job, state)
        has_copies = job.registration.has_copies
        if leased is not None and leased.commit is not None and has_copies and not job.full:
            is_older = job.source.is_older
            if await asyncio.to_thread(is_older, listing, leased.commit, state.committed_at):
                return _Comparison(listing, saved)
        async with _concurrently(asyncio.to_thread(job.uncommitted, listing)) as count:
            lost, indexed = await index_read
            base = await _read_base(job, state)
            collections = job.destination.collections
            basis = Basis.of(state, indexed, collections, lost, full=job.full, base=base)
            sync = await asyncio.to_thread(
                lambda: Sync(job.source, listing, basis, job.sizes, read_all=read_all)
            )
            source = registered if leased is None else leased.source
            await check_owners(sync, indexed, job.registration.base or source, job.store)
            is_new = not indexed and base is None
            return _Comparison(listing, saved, sync, is_new, await count)


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


async def _read_base(job: _Job, state: State) -> dict[str, str] | None:
    """Hash of each text of an overlay's base by uri; None for a source that is not an overlay.

    Changes of the base that wait in the log count as applied. A first sync takes over the files
    that the base has read, so that it reads only those with another fingerprint, and the changes of
    the base that were rejected. The overlay of a folder leaves the rest of its base as it is.
    """
    base = job.registration.base
    if base is None:
        return None
    base_state = State.from_json(await job.store.sources.state(base))
    await _resolve(base_state, base.project, job)
    contents = await job.store.sources.contents(base)
    if not state.files:
        state.files, state.rules = base_state.files, base_state.rules
        state.rejected = base_state.rejected
    folder = job.source.folder if isinstance(job.source, GitSource) else ""
    hashes = hashes_of(expected_of(base_state, _indexed_documents(contents, base.uri_prefix)))
    return {uri: text_hash for uri, text_hash in hashes.items() if uri.startswith(folder)}


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
