"""Publishing of a sync's changes, with saved state against interruption, and their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from datetime import timedelta

from pydantic import ValidationError

from events.client.follow import Following
from events.client.operator_client import OperatorClient
from events.client.outcomes import Outcome
from events.models import DocumentChanged, DocumentEmbedded, DocumentIndexed, first_problem
from events.names import Lane
from events.server.connection import LONGEST_BLOCK
from gateway.progress import KEYWORD, VECTOR, ShowProgress
from gateway.sync.batch import SyncBatch
from gateway.sync.ownership import Lease
from gateway.sync.report import SyncReport
from gateway.sync.stall_detector import StallDetector
from runtime import protocol_limits
from runtime.errors import UsageError
from runtime.failpoints import failpoint
from sources import Change, Sync, document_changed

__all__ = ["Outcomes", "publish_changes"]

_BATCH = 256
_BATCH_CHARACTERS = 8 * 2**20
_WINDOW = 16_384
"""Most documents that a killed sync leaves in doubt; the next sync publishes them again."""


class Outcomes:
    """Outcomes of the changes of this and earlier syncs of a source: counted and shown."""

    def __init__(
        self, client: OperatorClient, following: Following, report: SyncReport, show: ShowProgress
    ) -> None:
        self._client = client
        self._following = following
        self._report = report
        self._show = show
        self._sync: Sync | None = None
        self._prefix = ""
        self._changes = self._done = self._chunks = self._pending = self._embedded = 0

    async def begin(self, sync: Sync, prefix: str) -> None:
        """Follow the pending changes of earlier syncs; raises Unavailable without Redis."""
        self._sync, self._prefix = sync, prefix
        await self.add({token for token, _ in sync.state().pending.values()})

    async def add(self, tokens: Collection[str]) -> None:
        """Follow changes; raises Unavailable without Redis."""
        self._changes += len(tokens)
        await self._following.add(tokens)

    async def read(self, block: timedelta | None = None) -> int:
        """Count new outcomes, and return their number; raises Unavailable without Redis."""
        outcomes = await self._following.read(block)
        for outcome in outcomes:
            self._report.count(outcome)
            self._count(outcome)
        return len(outcomes)

    async def wait(self) -> None:
        """Wait for the outcomes of all followed changes.

        Raises:
            Unavailable: Redis can't be reached, or there is no progress.
        """
        detector = StallDetector(self._client)
        self._sync = None
        if self._following.waiting:
            self._show(KEYWORD, self._done, self._changes, unit="documents", chunks=self._chunks)
        while waiting := self._following.waiting:
            if await self.read(LONGEST_BLOCK):
                detector.restart()
            else:
                role = "indexer" if self._following.applying else "embedder"
                await detector.check(waiting, role)

    def _count(self, outcome: Outcome) -> None:
        """Count an outcome. The total of vectors is known when all changes are indexed."""
        if isinstance(outcome, DocumentEmbedded):
            self._embedded += outcome.data.chunks_embedded + outcome.data.chunks_refused
            total = self._pending if self._done >= self._changes else 0
            self._show(VECTOR, self._embedded, total, unit="chunks")
            return
        self._done += 1
        if isinstance(outcome, DocumentIndexed):
            self._chunks += outcome.data.chunks_added + outcome.data.chunks_kept
            self._pending += outcome.data.chunks_pending
            if self._sync is not None:
                self._sync.settled(outcome.data.uri[len(self._prefix) :], outcome.data.token)
        self._show(KEYWORD, self._done, self._changes, unit="documents", chunks=self._chunks)


async def publish_changes(
    sync: Sync,
    lease: Lease,
    client: OperatorClient,
    collections: tuple[str, ...],
    lane: Lane,
    outcomes: Outcomes | None,
    show: ShowProgress,
    sync_batch: SyncBatch,
) -> None:
    """Publish all changes of a sync, and read outcomes in between.

    Before a document is published, the saved state lists it as possibly published.

    Raises:
        UsageError: a uri is too long with its prefix, or the source no longer exists.
        SourceLost: another sync has taken the source over.
        Unavailable: a server can't be reached.
    """
    changes = iter(sync)
    sent = published = recorded = 0
    while True:
        batch, position = await asyncio.to_thread(_next_batch, changes, sync)
        if not batch:
            return
        lease.check()
        if position > recorded:
            recorded = position + _WINDOW
            state = sync.state(sync.touched(published, recorded))
            await lease.save(await asyncio.to_thread(state.to_json))
            failpoint("sync.recorded")
        await sync_batch.begin()
        events = [
            await _event(change, lease, client, collections, sync_batch.id) for change in batch
        ]
        receipts = await client.publish_many(events, lane)
        failpoint("sync.published")
        await sync_batch.count(receipts)
        for change, receipt in zip(batch, receipts, strict=True):
            sync.published(change, receipt.token)
        # a step may yield two changes, and the second may be in the next batch
        published = max(0, position - 1)
        sent += len(batch)
        show("publishing", sent, max(sent, sync.total))
        if outcomes is not None:
            await outcomes.add([receipt.token for receipt in receipts])
            while await outcomes.read():
                pass


def _next_batch(changes: Iterator[Change], sync: Sync) -> tuple[list[Change], int]:
    """Next changes, and the number of steps read so far; blocks while files are read."""
    batch: list[Change] = []
    characters = 0
    while len(batch) < _BATCH and characters < _BATCH_CHARACTERS:
        change = next(changes, None)
        if change is None:
            break
        batch.append(change)
        characters += len(change.content or "")
    return batch, sync.position


def _most_inline(content: str | bytes) -> int:
    if isinstance(content, str):
        return protocol_limits.INLINE_CONTENT_CHARACTERS
    return protocol_limits.INLINE_CONTENT_BYTES


async def _event(
    change: Change,
    lease: Lease,
    client: OperatorClient,
    collections: tuple[str, ...],
    batch: str,
) -> DocumentChanged:
    source = lease.leased.source
    content, content_ref = change.content, None
    if content is not None and len(content) > _most_inline(content):
        content_ref = await client.keep_content(source.project, content)
    try:
        return document_changed(
            change,
            source.project,
            collections,
            prefix=source.uri_prefix,
            agent=source.owner or None,
            origin=lease.leased.origin,
            content_ref=content_ref,
            batch=batch,
        )
    except ValidationError as error:
        raise UsageError(f"{source.uri_prefix}{change.uri}: {first_problem(error)}") from None
