"""Build of a generation: several batches at once, each read → cut → written; then vectors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import structlog

from events.names import DocumentKey, LogPosition
from processors.content import Contents
from processors.contexts.stage import ContextProgress
from processors.embedders.embedder import Urgency
from processors.embedding.single_flight import SharedEmbedding
from processors.embedding.stage import EmbeddingCost
from processors.indexing.preparation import EmbeddedDocument, Failure
from processors.replay.fold import Fold, LastChange, Rows
from processors.replay.project_log import ProjectLog
from processors.wiring.operator_tools import OperatorTools
from runtime import traces
from runtime.errors import HeadraceError, Poison
from runtime.failpoints import failpoint
from store.documents.bulk import BulkWriter
from store.documents.copy import copied
from store.generations.catalog import Generation
from store.types import DocumentWrite

__all__ = ["Builder", "Progress", "read_batches"]

log = structlog.get_logger(__name__)

BATCH_BYTES = 2 * 2**20
BATCH_DOCUMENTS = 1_000
BATCHES_AT_ONCE = 3

Batch = TypeVar("Batch", bound=Sized)

Progress = Callable[[int, int], None]
"""Called with the number of documents done, and their total."""

Work = Callable[[Batch], Awaitable[None]]


@dataclass
class Builder:
    """Writer of documents of one project into one of its generations that isn't live.

    In ``stored`` the documents there are marked; the marks stay current, as there is no other
    writer. ``log``: reads changes when they are built. ``refused``: why a change can't be
    processed, by its log position. ``in_bulk``: documents that are not marked have no rows at all,
    so that they can be written by COPY. ``guard`` raises if nothing may be written any more.
    ``cost``: cost of its vectors so far.
    """

    project: str
    generation: Generation
    stored: Fold
    log: ProjectLog
    tools: OperatorTools
    refused: dict[LogPosition, Poison] = field(default_factory=dict)
    in_bulk: bool = True
    guard: Callable[[], None] = lambda: None
    cost: EmbeddingCost = field(default_factory=EmbeddingCost)

    async def build(self, fold: Fold, rows: Rows, progress: Progress) -> None:
        """Build documents of a fold; documents that can't be processed stay unchanged.

        ``rows`` are in the order of the log. Texts without a cached vector wait until ``embed``. A
        rename that can't be processed does not delete its old uri either.

        Raises:
            Unavailable: a server is down; what was written stays.
            OperatorError: a model has no key any more, or a change can't be read any more.
        """
        deleted = fold.deleted(rows)
        await self._build(fold, rows[~deleted], progress)
        to_delete = [
            row for row in rows[deleted].tolist() if fold.log_position(row) not in self.refused
        ]
        await self._build(fold, np.array(to_delete, np.int64), progress)

    async def embed(self, progress: Progress) -> None:
        """Make the vectors that the generation lacks, with the stage that workers use.

        Raises:
            Unavailable: a server or a model is down; what was written stays.
            ConfigurationError: a model has no key any more, for example.
        """
        total = await self.tools.pending.count(self.generation)
        if not total:
            return
        cost = await self.tools.vector_stage().run_all(
            self.project, self.generation.id, show=lambda done: progress(done, total)
        )
        self.cost.add(cost)

    async def write_contexts(self, progress: Progress) -> None:
        """Write the contexts that the generation lacks, with the stage that workers use.

        If the language model is down or the budget is spent, the rest waits for the workers: the
        replay does not depend on contexts.
        """
        if not self.generation.recipe.context:
            return
        sharing = SharedEmbedding(self.tools.embedders, self.tools.pending)
        try:
            result = await self.tools.context_stage(sharing).run(
                self.project, self.generation, wait=True
            )
        except HeadraceError as error:
            result = ContextProgress(failure=error)
        if result.failure is not None or result.postponed:
            log.warning(
                "contexts.postponed",
                project=self.project,
                generation=self.generation.id,
                reason=str(result.failure or ", ".join(result.postponed)),
            )
        progress(result.chunks, result.chunks)

    async def copy_documents(self, source: Generation, rows: Rows, progress: Progress) -> None:
        """Copy documents that are not stored here yet from another generation.

        Documents that have changed there since are skipped. Damaged documents are built from the
        log instead: a copy would record the damage as the intended contents.

        Raises:
            Unavailable: Postgres is down; what was written stays.
        """

        async def copy(part: Rows) -> None:
            batch = [self.stored[row] for row in part.tolist()]
            log_positions = {document.key: document.log_position for document in batch}
            copies = await copied(
                self.tools.database, self.project, source, list(log_positions), self.generation
            )
            current = [
                document
                for document in copies
                if log_positions[_key(document.write)] == document.write.log_position
            ]
            await self._write([document.write for document in current if document.whole])
            damaged = {_key(document.write) for document in current if not document.whole}
            if damaged:
                again = [document.key in damaged for document in batch]
                changes = self.log.last_changes(self.stored, part[again])
                await self._add([last async for last in changes])

        await _at_once(_row_batches(self.stored, rows), copy, len(rows), progress)

    async def _build(self, fold: Fold, rows: Rows, progress: Progress) -> None:
        stored = np.fromiter(
            (not self.in_bulk or self.stored.is_stored(fold.key(row)) for row in rows.tolist()),
            np.bool_,
        )
        for part, work in ((rows[~stored], self._add), (rows[stored], self._change)):
            if len(part):
                changes = read_batches(self.log.last_changes(fold, part))
                await _at_once(changes, work, len(part), progress)

    async def _add(self, batch: Sequence[LastChange]) -> None:
        await self._write(await self._prepare(batch))

    async def _change(self, batch: Sequence[LastChange]) -> None:
        writes = await self._prepare(batch)
        self.guard()
        await self.tools.store.rebuild(self.generation, writes)
        self._record(writes)

    async def _write(self, writes: Sequence[DocumentWrite]) -> None:
        self.guard()
        if writes:
            generation = self.generation
            writer = BulkWriter(self.tools.database, generation.project_id, generation)
            await writer.write(writes)
        self._record(writes)

    async def _prepare(self, batch: Sequence[LastChange]) -> list[DocumentWrite]:
        changes = [last.alone() for last in batch]
        with traces.span(
            "replay batch",
            links=[change.event.trace for change in changes if change.event.traceparent],
            attributes={
                "messaging.batch.message_count": len(changes),
                "headrace.project": self.project,
                "headrace.generation": self.generation.id,
            },
        ):
            texts = await Contents(self.project, self.tools.archive).of(changes)
            prepared = await self.tools.preparer(texts.fetch).prepare(
                changes, self.generation, Urgency.BULK
            )
        self._refuse(prepared.failures)
        self.cost.add(_sentence_cost(prepared.documents))
        return [document.write for document in prepared.documents]

    def _refuse(self, failures: Sequence[Failure]) -> None:
        for failure in failures:
            if not isinstance(failure.error, Poison):
                raise failure.error
            self.refused[failure.change.log_position] = failure.error

    def _record(self, writes: Sequence[DocumentWrite]) -> None:
        for write in writes:
            self.stored.mark_stored(_key(write), write.rank)
        failpoint("replay.building")


def _sentence_cost(documents: Sequence[EmbeddedDocument]) -> EmbeddingCost:
    """Cost of the documents before their chunks are embedded."""
    return EmbeddingCost(
        tokens=sum(document.tokens_embedded for document in documents),
        cost_usd=sum(document.cost_usd for document in documents),
    )


def _key(write: DocumentWrite) -> DocumentKey:
    return DocumentKey(write.agent or "", write.uri)


async def _at_once(
    batches: AsyncIterator[Batch],
    work: Work[Batch],
    total: int,
    progress: Progress,
) -> None:
    """Process several batches at once; the first failure ends all of them."""
    slots = asyncio.Semaphore(BATCHES_AT_ONCE)
    done = 0

    async def run(batch: Batch) -> None:
        nonlocal done
        try:
            await work(batch)
        finally:
            slots.release()
        done += len(batch)
        progress(done, total)

    try:
        async with asyncio.TaskGroup() as group:
            async for batch in batches:
                await slots.acquire()
                group.create_task(run(batch))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures


async def read_batches(changes: AsyncIterator[LastChange]) -> AsyncIterator[list[LastChange]]:
    """Collect changes in batches, limited by number and amount of text."""
    batch: list[LastChange] = []
    size = 0
    async for last in changes:
        if batch and (len(batch) == BATCH_DOCUMENTS or size + last.content_bytes > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(last)
        size += last.content_bytes
    if batch:
        yield batch


async def _row_batches(fold: Fold, rows: Rows) -> AsyncIterator[Rows]:
    """Split rows into batches with the same limits."""
    start = size = 0
    for index, content_bytes in enumerate(fold.sizes(rows)):
        if index - start == BATCH_DOCUMENTS or (
            index > start and size + content_bytes > BATCH_BYTES
        ):
            yield rows[start:index]
            start, size = index, 0
        size += content_bytes
    if start < len(rows):
        yield rows[start:]
