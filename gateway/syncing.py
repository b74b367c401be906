"""Bringing a source's changes into the log, and following them until they are searchable."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from itertools import islice
from typing import Any

from pydantic import ValidationError

from events import (
    Client,
    DocumentChanged,
    DocumentEmbedded,
    DocumentIndexed,
    DocumentRejected,
    Lane,
    Outcome,
    Receipt,
)
from events.models import first_problem
from gateway.progress import KEYWORD, VECTOR, ShowProgress
from runtime.errors import UsageError
from sources import Source, State, Sync, document_changed
from store.store import Store

__all__ = ["Destination", "SyncReport", "Until", "sync_source"]

_BATCH = 256
_LIVE_CHANGES = 100
"""Up to so many changes count as a small sync, which may go before a bulk import."""
_PATIENCE = timedelta(minutes=2)
_LEASE = timedelta(seconds=30)


class Until(Enum):
    """How far a sync follows what it has published."""

    PUBLISHED = auto()
    KEYWORDS = auto()
    VECTORS = auto()


@dataclass(frozen=True)
class Destination:
    """Where documents go. ``lane`` None: bulk for a first or a large sync, else live."""

    project: str
    collections: tuple[str, ...] = ()
    lane: Lane | None = None


@dataclass
class SyncReport:
    """Result of one sync. When it was waited for, ``published`` = ``indexed`` + rejected.

    ``chunks_pending``: chunks that still wait for vectors as far as the sync has followed them.
    """

    source: str
    kind: str
    lane: Lane
    found: int = 0
    unchanged: int = 0
    published: int = 0
    deleted: int = 0
    indexed: int = 0
    chunks_embedded: int = 0
    chunks_pending: int = 0
    skipped: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        """As the command prints it."""
        return {**vars(self), "lane": self.lane.value, "skipped": dict(self.skipped)}


async def sync_source(
    source: Source,
    destination: Destination,
    client: Client,
    store: Store,
    *,
    max_bytes: int,
    until: Until,
    show: ShowProgress,
) -> SyncReport:
    """Publish what changed since the last sync, and wait as long as ``until`` says.

    Killed half-way, the next sync publishes again what may be missing, under the same event ids.

    Raises:
        UsageError: the source can't be read, or the project's name can't be used.
        Unavailable: a server can't be reached, or nothing was indexed for two minutes.
    """
    key = json.dumps([source.name, *destination.collections])
    _check(destination)
    registered = await store.sources.register(
        destination.project, key, key, source.kind, source.name
    )
    taken = await store.sources.take(registered, _LEASE, await client.horizon())
    before = State.from_json(taken.state)
    sync = await asyncio.to_thread(Sync, source, before, max_bytes)
    small = before is not None and sync.total <= _LIVE_CHANGES
    lane = destination.lane or (Lane.LIVE if small else Lane.BULK)
    if sync.total:
        await store.sources.renew(taken, _LEASE, sync.intent.to_json())
    receipts = await _publish(sync, destination, lane, client, show)
    await store.sources.finish(taken, sync.state.to_json(), None)
    counts = sync.report
    report = SyncReport(source.name, source.kind, lane, counts.found, counts.unchanged)
    report.published, report.deleted = counts.published, counts.deleted
    report.skipped.update({reason.value: count for reason, count in counts.skipped.items()})
    if until is not Until.PUBLISHED:
        vectors = until is Until.VECTORS
        await _follow(client, receipts, report, show, vectors=vectors)
    return report


def _check(destination: Destination) -> None:
    """Raises UsageError when the events would be refused."""
    try:
        DocumentChanged.model_validate(
            {
                "type": DocumentChanged.TYPE,
                "data": {
                    "project": destination.project,
                    "collections": destination.collections,
                    "uri": "any",
                    "change": "delete",
                },
            }
        )
    except ValidationError as error:
        raise UsageError(first_problem(error)) from None


async def _publish(
    sync: Sync, destination: Destination, lane: Lane, client: Client, show: ShowProgress
) -> list[Receipt]:
    changes = _changes(sync, destination)
    receipts: list[Receipt] = []
    # reading blocks: one batch at a time in a thread
    while batch := await asyncio.to_thread(lambda: list(islice(changes, _BATCH))):
        receipts += await client.publish_many(batch, lane)
        show("publishing", len(receipts), max(sync.total, len(receipts)))
    return receipts


def _changes(sync: Sync, destination: Destination) -> Iterator[DocumentChanged]:
    for change in sync:
        yield document_changed(change, destination.project, destination.collections)


async def _follow(
    client: Client,
    receipts: list[Receipt],
    report: SyncReport,
    show: ShowProgress,
    *,
    vectors: bool,
) -> None:
    following = _Following(show, len(receipts))
    async for outcome in client.follow(receipts, _PATIENCE, vectors=vectors):
        _count(outcome, report)
        following.add(outcome)


class _Following:
    """Shows how many changes, and how many of their chunks, are searchable."""

    def __init__(self, show: ShowProgress, changes: int) -> None:
        self._show = show
        self._changes = changes
        self._done = self._chunks = self._pending = self._embedded = 0
        if changes:
            show(KEYWORD, 0, changes, unit="files", chunks=0)

    def add(self, outcome: Outcome) -> None:
        """Show one more outcome. The total of vectors is known once all chunks are."""
        if isinstance(outcome, DocumentEmbedded):
            self._embedded += outcome.data.chunks_embedded + outcome.data.chunks_refused
            total = self._pending if self._done >= self._changes else 0
            self._show(VECTOR, self._embedded, total, unit="chunks")
            return
        self._done += 1
        if isinstance(outcome, DocumentIndexed):
            self._chunks += outcome.data.chunks_added + outcome.data.chunks_kept
            self._pending += outcome.data.chunks_pending
        self._show(KEYWORD, self._done, self._changes, unit="files", chunks=self._chunks)


def _count(outcome: Outcome, report: SyncReport) -> None:
    if isinstance(outcome, DocumentEmbedded):
        report.chunks_embedded += outcome.data.chunks_embedded
        report.chunks_pending -= outcome.data.chunks_embedded + outcome.data.chunks_refused
        return
    if isinstance(outcome, DocumentRejected):
        report.skipped[f"rejected: {outcome.data.problem.type}"] += 1
        return
    report.indexed += outcome.data.change != "delete"
    report.chunks_embedded += outcome.data.chunks_embedded
    report.chunks_pending += outcome.data.chunks_pending
