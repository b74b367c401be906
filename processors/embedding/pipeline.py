"""Pipeline that makes indexed documents searchable by vector: embed → write → report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import structlog

from events.client.outcomes import Outcomes
from events.models import DocumentChunked, DocumentEmbedded, DocumentEmbeddedData
from events.names import LogPosition
from processors.deliveries import Delivery
from processors.embedders.embedder import Urgency
from processors.embedding.stage import EmbeddingCost, VectorStage
from runtime.errors import HeadraceError
from runtime.failpoints import failpoint
from runtime.traces import staged

__all__ = ["Chunked", "Embedding"]

log = structlog.get_logger(__name__)

Chunked = Delivery[DocumentChunked]


class Embedding:
    """The pipeline of ``document.chunked``.

    Each event names the change that wrote a document version. If a newer change has replaced the
    document, no chunk of the named change waits for a vector, and the newer change's event does
    the work.
    """

    def __init__(self, stage: VectorStage, outcomes: Outcomes) -> None:
        self._stage = stage
        self._outcomes = outcomes

    async def run(self, deliveries: Sequence[Chunked]) -> None:
        """Embed a batch, one project and generation after the other.

        Raises:
            Unavailable: a server or a model is down; groups that are done stay done.
            ConfigurationError: a model has no key, or sends vectors of another width than before.
        """
        failpoint("embedding.taken")
        groups: defaultdict[tuple[str, int], list[Chunked]] = defaultdict(list)
        for delivery in deliveries:
            groups[delivery.event.data.project, delivery.event.data.generation].append(delivery)
        failure: HeadraceError | None = None
        for (project, generation_id), group in groups.items():
            try:
                await self._embed(project, generation_id, group)
            except HeadraceError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _embed(self, project: str, generation_id: int, group: Sequence[Chunked]) -> None:
        """Embed a group, and report the changes that a page completes: a batch may take minutes."""
        waiting: defaultdict[LogPosition, list[Chunked]] = defaultdict(list)
        for delivery in group:
            waiting[_log_position(delivery)].append(delivery)
        pages = self._stage.run(project, generation_id, list(waiting), _urgency(group))
        async for complete in pages:
            costs = {
                delivery: cost
                for log_position, cost in complete.items()
                for delivery in waiting.pop(log_position, [])
            }
            if costs:
                await self._finish(costs)
        without_work = {
            delivery: EmbeddingCost() for deliveries in waiting.values() for delivery in deliveries
        }
        if without_work:
            await self._finish(without_work)

    @staged("report")
    async def _finish(self, costs: Mapping[Chunked, EmbeddingCost]) -> None:
        await self._outcomes.publish([_outcome(*pair) for pair in costs.items()])
        failpoint("embedding.reported")
        for delivery in costs:
            delivery.acknowledge()


def _log_position(delivery: Chunked) -> LogPosition:
    return LogPosition.from_token(delivery.event.data.token)


def _urgency(group: Sequence[Chunked]) -> Urgency:
    live = any(delivery.topic.is_live for delivery in group)
    return Urgency.LIVE if live else Urgency.BULK


def _outcome(delivery: Chunked, cost: EmbeddingCost) -> DocumentEmbedded:
    data = delivery.event.data
    elapsed = datetime.now(UTC) - data.published_at
    event = DocumentEmbedded(
        data=DocumentEmbeddedData(
            event_id=data.event_id,
            token=data.token,
            project=data.project,
            uri=data.uri,
            agent=data.agent,
            generation=data.generation,
            chunks_embedded=cost.chunks,
            chunks_refused=cost.refused,
            tokens_embedded=round(cost.tokens),
            cost_usd=cost.cost_usd,
            embedded_after_ms=max(0.0, elapsed.total_seconds() * 1000),
        )
    )
    return event.in_trace(delivery.span)
