"""Quality gate: a new generation must not answer known questions much worse than the live one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from events.models import Query
from processors.answering.pipeline import Answering
from processors.recipes import RecipeNotices
from processors.replay.report import GateScores
from processors.wiring.operator_tools import OperatorTools
from processors.wiring.pipelines import answering_of
from runtime.errors import UsageError
from store.generations.catalog import Generation

__all__ = ["Ask", "EvaluationGate"]

Ask = Callable[[str], Awaitable[Sequence[str]]]
"""Asks one question; returns the uri of each chunk found, best first."""

Score = Callable[[Ask], Awaitable[float]]

_CHUNKS_ASKED = 100
_TIMEOUT = timedelta(seconds=30)
_REPLY_KEY = "gate"


@dataclass(frozen=True)
class EvaluationGate:
    """Quality gate. ``score`` rates answers from 0 to 1; it may fall by at most ``max_drop``."""

    score: Score
    max_drop: float

    async def __call__(
        self, tools: OperatorTools, project: str, live: Generation, new: Generation
    ) -> GateScores:
        """Score both generations.

        Raises:
            UsageError: the live generation finds no expected answer, so that none can be worse.
            Unavailable: a server or a model is down.
        """
        pipeline = answering_of(
            tools, lambda texts: [len(text) for text in texts], RecipeNotices(None)
        )
        live_score = await self.score(_asker(pipeline, project, live))
        if not live_score:
            raise UsageError(
                f"the quality gate has no baseline: the live index of {project} returns none of "
                "the expected documents",
                "use uris of documents as the gate's document ids",
            )
        return GateScores(
            live=live_score,
            new=await self.score(_asker(pipeline, project, new)),
            max_drop=self.max_drop,
        )


def _asker(pipeline: Answering, project: str, generation: Generation) -> Ask:
    async def ask(text: str) -> Sequence[str]:
        query = Query(
            project=project, text=text, limit=_CHUNKS_ASKED, reply_to=_REPLY_KEY, rerank=False
        )
        answer = await pipeline.answer(str(uuid4()), query, _TIMEOUT, generation)
        return [result.citation.uri for result in answer.results]

    return ask
