"""Bringing a source's changes into the log, and following them until they are searchable."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import Any

from pydantic import ValidationError

from events import Client, DocumentChanged, DocumentRejected, Lane, Outcome, Receipt
from events.models import first_problem
from gateway.progress import ShowProgress
from runtime.errors import UsageError
from sources import Source, State, Sync, document_changed
from store.store import Store

__all__ = ["Destination", "SyncReport", "sync_source"]

_BATCH = 256
_LIVE_CHANGES = 100
"""Up to so many changes count as a small sync, which may go before a bulk import."""
_PATIENCE = timedelta(minutes=2)


@dataclass(frozen=True)
class Destination:
    """Where documents go. ``lane`` None: bulk for a first or a large sync, else live."""

    project: str
    collections: tuple[str, ...] = ()
    lane: Lane | None = None


@dataclass
class SyncReport:
    """What became of one sync. When it was waited for, ``published`` = ``indexed`` + rejected."""

    source: str
    kind: str
    lane: Lane
    found: int = 0
    unchanged: int = 0
    published: int = 0
    deleted: int = 0
    indexed: int = 0
    chunks_embedded: int = 0
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
    wait: bool,
    show: ShowProgress,
) -> SyncReport:
    """Publish what changed since the last sync; with ``wait``, until it is searchable.

    Killed half-way, the next sync publishes again what may be missing, under the same event ids.

    Raises:
        UsageError: the source can't be read, or the project's name can't be used.
        Unavailable: a server can't be reached, or nothing was indexed for two minutes.
    """
    key = json.dumps([source.name, *destination.collections])
    _check(destination)
    before = State.from_json(await store.source_state(destination.project, key))
    sync = await asyncio.to_thread(Sync, source, before, max_bytes)
    small = before is not None and sync.total <= _LIVE_CHANGES
    lane = destination.lane or (Lane.LIVE if small else Lane.BULK)
    if sync.total:
        await store.save_source_state(destination.project, key, sync.intent.to_json())
    receipts = await _publish(sync, destination, lane, client, show)
    await store.save_source_state(destination.project, key, sync.state.to_json())
    counts = sync.report
    report = SyncReport(source.name, source.kind, lane, counts.found, counts.unchanged)
    report.published, report.deleted = counts.published, counts.deleted
    report.skipped.update({reason.value: count for reason, count in counts.skipped.items()})
    if wait:
        await _follow(client, receipts, report, show)
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
    client: Client, receipts: list[Receipt], report: SyncReport, show: ShowProgress
) -> None:
    done = 0
    async for outcome in client.follow(receipts, _PATIENCE):
        done += 1
        _count(outcome, report)
        show("indexing", done, len(receipts))


def _count(outcome: Outcome, report: SyncReport) -> None:
    if isinstance(outcome, DocumentRejected):
        report.skipped[f"rejected: {outcome.data.problem.type}"] += 1
        return
    report.indexed += outcome.data.change != "delete"
    report.chunks_embedded += outcome.data.chunks_embedded
