"""Pipeline of judgements: from an event to a row beside the question that it is about.

A judgement that can't be kept is left out and logged: it is the asker's, and no operator can do
anything about it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import structlog

from events.models import QueryJudged
from events.streams.answer_records import AnswerRecord, AnswerRecords
from processors.deliveries import Delivery
from runtime import metrics
from store.generations.catalog import Projects
from store.generations.judgements import Judgements, StoredJudgement

__all__ = ["JudgementPipeline"]

log = structlog.get_logger(__name__)


class JudgementPipeline:
    """Checks judgements by the records of their answers, and keeps them."""

    def __init__(self, records: AnswerRecords, projects: Projects, judgements: Judgements) -> None:
        self._records = records
        self._projects = projects
        self._judgements = judgements

    async def run(self, deliveries: Sequence[Delivery[QueryJudged]]) -> None:
        """Keep a batch of judgements, each once by its event id.

        Raises:
            Unavailable: Redis or Postgres can't be reached; the events stay pending.
        """
        events = [delivery.event for delivery in deliveries]
        records = await self._records.read([event.data.query_id for event in events])
        accepted: defaultdict[str, dict[str, StoredJudgement]] = defaultdict(dict)
        for event, record in zip(events, records, strict=True):
            judgement = _checked(event, record)
            metrics.JUDGEMENTS.inc(verdict="refused" if judgement is None else judgement.verdict)
            if judgement is not None:
                accepted[event.data.project].setdefault(event.id, judgement)
        for project, judgements in accepted.items():
            project_id = await self._projects.find(project)
            if project_id is not None:
                await self._judgements.add(project_id, judgements)


def _checked(event: QueryJudged, record: AnswerRecord | None) -> StoredJudgement | None:
    """Return the judgement with its question; None if it isn't of an answer that the agent got."""
    data = event.data
    passage = None if record is None else record.passage(data.chunk_id)
    if record is None:
        reason = "the query has no answer of the last hour that can be judged"
    elif (record.project, record.agent) != (data.project, data.agent):
        reason = "the query is of another project or agent"
    elif passage is None:
        reason = "the answer does not have the chunk"
    else:
        return StoredJudgement(
            query_id=data.query_id,
            agent=record.agent or "",
            text=record.text,
            mode=record.mode,
            filters=record.filters,
            uri=passage.uri,
            start_line=passage.start_line,
            end_line=passage.end_line,
            rank=data.rank or passage.rank,
            verdict=data.verdict,
            judged_at=event.time,
        )
    log.info("judgement.refused", event_id=event.id, project=data.project, reason=reason)
    return None
