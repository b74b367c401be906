"""Pipeline of changes: admit → prepare (resolve, cut) → write → report.

A change is searchable by keyword when the write commits. Vectors that do not exist by then follow,
see ``processors.embedding``.

The documents of a batch are processed together, so that the model and the database get few, large
requests. A document that cannot be processed fails alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import structlog

from events.names import Lane
from processors.embedders.embedder import Urgency
from processors.embedding.keyword_precedence import Precedence
from processors.indexing.intake import ChangeIntake, groups_of, logged
from processors.indexing.preparation import EmbeddedDocument, Failure, Preparer
from processors.indexing.realigner import Realigner
from processors.indexing.reports import Change, Reporter
from processors.recipes import RecipeNotices
from runtime import metrics
from runtime.errors import CircuitOpen, HeadraceError, OperatorError, Poison, RateLimited
from runtime.failpoints import failpoint
from runtime.traces import staged
from store.documents.fence import LateChanges
from store.generations.switch import GenerationMoved
from store.store import Store
from store.types import Applied, DocumentWrite

__all__ = ["Indexing"]

log = structlog.get_logger(__name__)

MOST_MOVES = 3
"""Most generation switches in a row for which a group is prepared again; then it fails."""

_OF_ONE_MODEL = (CircuitOpen, RateLimited, OperatorError)
"""Errors that delay the changes of one project only; other projects of the batch continue."""


class Indexing:
    """The pipeline of changes.

    Each group of changes is prepared for the generation that is live then. If another one is live
    at the time of the write, the group is prepared again, so that no change misses a switch.

    No order is guaranteed between documents, batches or workers. The fence in ``Store.apply`` keeps
    an older change from overwriting a newer one.
    """

    def __init__(
        self,
        store: Store,
        intake: ChangeIntake,
        preparer: Preparer,
        notices: RecipeNotices,
        reporter: Reporter,
        precedence: Precedence,
        realigner: Realigner,
    ) -> None:
        self._store = store
        self._intake = intake
        self._preparer = preparer
        self._notices = notices
        self._reporter = reporter
        self._precedence = precedence
        self._realigner = realigner

    async def run(self, deliveries: Sequence[Change]) -> None:
        """Index a batch.

        Raises:
            Poison: a change cannot be processed; all others of the batch are done.
            Unavailable: a server or a model is down; unfinished changes stay pending.
        """
        failpoint("indexing.taken")
        errors: list[HeadraceError] = []
        bulk = _urgency(deliveries) is Urgency.BULK
        with self._precedence.indexing() if bulk else nullcontext():
            for group in groups_of(deliveries):
                try:
                    errors += [failure.error for failure in await self._index(group)]
                except _OF_ONE_MODEL as error:
                    errors.append(error)
        if errors:
            raise next((error for error in errors if isinstance(error, Poison)), errors[0])

    async def _index(self, group: Sequence[Change]) -> Sequence[Failure]:
        with metrics.INDEXING_STAGE_SECONDS.time(stage="skip"):
            fresh, refused = await self._intake.admit(group)
        for _ in range(MOST_MOVES):
            try:
                return [*refused, *await self._apply(fresh)]
            except GenerationMoved as error:
                log.info("changes.prepared_again", changes=len(fresh), reason=str(error))
        return [*refused, *await self._apply(fresh)]

    async def _apply(self, deliveries: Sequence[Change]) -> Sequence[Failure]:
        """Prepare changes of one project for the generation that is live now, and write them."""
        if not deliveries:
            return []
        project = deliveries[0].event.data.project
        generation = await self._store.generation(project)
        if generation.id not in self._notices.compared:
            self._notices.compare(project, generation)
        changes = [logged(delivery) for delivery in deliveries]
        prepared = await self._preparer.prepare(changes, generation, _urgency(deliveries))
        failpoint("indexing.prepared")
        with metrics.INDEXING_STAGE_SECONDS.time(stage="write"):
            applied = await self._write(project, _writes(deliveries, prepared.documents))
        failpoint("indexing.committed")
        with metrics.INDEXING_STAGE_SECONDS.time(stage="report"):
            refused = await self._reporter.report(
                deliveries, prepared.documents, applied, generation
            )
        return [*prepared.failures, *refused]

    @staged("write")
    async def _write(self, project: str, writes: Sequence[DocumentWrite]) -> list[Applied]:
        """Write a group. If changes are older than the index, realign their streams first."""
        try:
            return await self._store.apply(writes, may_be_late=False)
        except LateChanges as late:
            await self._realigner.run(project, late.partitions)
        return await self._store.apply(writes)


def _writes(
    deliveries: Sequence[Change], documents: Sequence[EmbeddedDocument]
) -> list[DocumentWrite]:
    """Collect the writes; the ledger must record which changes only assert their position."""
    claimants = {
        delivery.log_position: delivery.sha256
        for delivery in deliveries
        if not delivery.is_original
    }
    return [
        replace(
            document.write,
            claimant=claimants.get(document.change.log_position),
            tokens_embedded=document.tokens_embedded,
            cost_usd=document.cost_usd,
        )
        for document in documents
    ]


def _urgency(group: Sequence[Change]) -> Urgency:
    live = any(change.own is not None and change.own.lane is Lane.LIVE for change in group)
    return Urgency.LIVE if live else Urgency.BULK
