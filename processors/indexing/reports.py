"""Reports of applied changes: their outcomes, and the documents that wait for vectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import structlog

from events.client.outcomes import Outcomes
from events.models import (
    DocumentChanged,
    DocumentChunked,
    DocumentChunkedData,
    DocumentIndexed,
    DocumentIndexedData,
    DocumentRejected,
    DocumentRejectedData,
    Problem,
)
from events.names import Lane
from events.streams.chunked import ChunkedStreams
from processors.deliveries import Delivery
from processors.indexing.preparation import EmbeddedDocument, Failure
from runtime import metrics
from runtime.errors import PreconditionFailed
from runtime.failpoints import failpoint
from runtime.traces import staged
from store.generations.catalog import Generation
from store.types import Applied

__all__ = ["Change", "Reporter", "Result", "Written", "result_of"]

log = structlog.get_logger(__name__)

Change = Delivery[DocumentChanged]


class Result(NamedTuple):
    """Outcome of a change, and the generation that it was applied to; 0 if that is not known."""

    delivery: Change
    data: DocumentIndexedData
    generation_id: int


@dataclass(frozen=True, slots=True)
class Written:
    """Changes of one project whose documents were written to a generation.

    ``applied`` has the result of each document, in the same order.
    """

    deliveries: Sequence[Change]
    documents: Sequence[EmbeddedDocument]
    applied: Sequence[Applied]
    generation: Generation


class Reporter:
    """Publishes outcomes and requests for vectors after a commit, then acknowledges the changes.

    Outcomes are published first, so that ``document.embedded`` never overtakes
    ``document.indexed``.
    """

    def __init__(self, outcomes: Outcomes, chunked: ChunkedStreams) -> None:
        self._outcomes = outcomes
        self._chunked = chunked

    async def report(self, groups: Sequence[Written]) -> list[Failure]:
        """Report documents that were written; return those in conflict.

        A change that expects another content is reported as rejected, and acknowledged.

        Raises:
            Unavailable: Redis cannot be reached; the changes stay pending.
        """
        results: list[Result] = []
        conflicts: list[Failure] = []
        unexpected: list[tuple[Change, PreconditionFailed]] = []
        for group in groups:
            by_position = {delivery.log_position: delivery for delivery in group.deliveries}
            for document, result in zip(group.documents, group.applied, strict=True):
                delivery = by_position[document.change.log_position]
                if result.conflict is None:
                    results.append(result_of(delivery, result, group.generation.id, document))
                elif isinstance(result.conflict, PreconditionFailed):
                    unexpected.append((delivery, result.conflict))
                else:
                    conflicts.append(Failure(document.change, result.conflict))
        await self._reject(unexpected)
        await self.finish(results)
        return conflicts

    async def _reject(self, unexpected: Sequence[tuple[Change, PreconditionFailed]]) -> None:
        """Report changes that expect another content; the ledger has them already."""
        if not unexpected:
            return
        await self._outcomes.publish([_rejected(*pair) for pair in unexpected])
        for delivery, error in unexpected:
            delivery.acknowledge()
            metrics.CHANGES.inc(outcome="rejected", lane=delivery.log_position.lane)
            log.info("document.rejected", event_id=delivery.event.id, reason=str(error))

    @staged("report")
    async def finish(self, results: Sequence[Result]) -> None:
        """Report changes that were applied.

        Raises:
            Unavailable: Redis cannot be reached; the changes stay pending.
        """
        await self._outcomes.publish(
            [
                DocumentIndexed(batch=delivery.event.batch, data=data).in_trace(delivery.span)
                for delivery, data, _ in results
            ]
        )
        failpoint("indexing.reported")
        await self._request_vectors(results)
        failpoint("indexing.requested")
        for delivery, data, _ in results:
            delivery.acknowledge()
            _count(delivery, data)

    async def _request_vectors(self, results: Sequence[Result]) -> None:
        by_lane: defaultdict[Lane, list[DocumentChunked]] = defaultdict(list)
        for delivery, data, generation_id in results:
            if data.chunks_pending:
                lane = Lane.LIVE if delivery.topic.is_live else Lane.BULK
                by_lane[lane].append(_chunked(delivery, data, generation_id))
        for lane, events in by_lane.items():
            await self._chunked.publish(events, lane)


def _chunked(delivery: Change, data: DocumentIndexedData, generation_id: int) -> DocumentChunked:
    event = DocumentChunked(
        data=DocumentChunkedData(
            event_id=data.event_id,
            token=data.token,
            project=data.project,
            uri=data.uri,
            agent=delivery.event.data.agent,
            generation=generation_id,
            chunks=data.chunks_pending,
            published_at=delivery.event.time,
        )
    )
    return event.in_trace(delivery.span)


def _rejected(delivery: Change, error: PreconditionFailed) -> DocumentRejected:
    return DocumentRejected(
        batch=delivery.event.batch,
        data=DocumentRejectedData(
            event_id=delivery.event.id,
            token=delivery.log_position.token,
            project=delivery.event.data.project,
            uri=delivery.event.data.uri,
            agent=delivery.event.data.agent,
            problem=Problem(type=error.code, detail=str(error)[:4000]),
            attempts=delivery.attempts,
        ),
    )


def result_of(
    delivery: Change,
    applied: Applied,
    generation_id: int,
    document: EmbeddedDocument | None = None,
) -> Result:
    """Pair a change with its outcome. ``document`` is None if another attempt applied it."""
    assert applied.outcome != "rejected", "a rejected change goes to the dead letters"
    event = delivery.event
    elapsed = datetime.now(UTC) - event.time
    data = DocumentIndexedData(
        event_id=event.id,
        token=delivery.log_position.token,
        project=event.data.project,
        uri=event.data.uri,
        agent=event.data.agent,
        change=event.data.change,
        outcome=applied.outcome,
        created=applied.created,
        chunks_kept=applied.chunks_kept,
        chunks_added=applied.chunks_added,
        chunks_removed=applied.chunks_removed,
        chunks_pending=applied.chunks_pending,
        code_examples=0 if document is None else document.write.code_examples,
        chunks_embedded=0 if document is None else document.chunks_embedded,
        tokens_embedded=0 if document is None else document.tokens_embedded,
        cost_usd=0.0 if document is None else document.cost_usd,
        searchable_after_ms=max(0.0, elapsed.total_seconds() * 1000),
        warnings=() if document is None else document.write.warnings,
    )
    return Result(delivery, data, generation_id)


def _count(delivery: Change, data: DocumentIndexedData) -> None:
    lane = delivery.topic.lane
    metrics.CHANGES.inc(outcome=data.outcome, lane=lane)
    # the current span is that of the whole batch
    metrics.FRESHNESS_SECONDS.observe(
        data.searchable_after_ms / 1000, delivery.span, lane=lane, project=data.project
    )
    log.debug(
        "document.indexed",
        event_id=data.event_id,
        project=data.project,
        uri=data.uri,
        outcome=data.outcome,
        token=data.token,
    )
