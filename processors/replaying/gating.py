"""The gate: a generation must not answer known questions much worse than the live one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from events.models import Query
from processors.answering.pipeline import Answering
from processors.replaying.findings import NotSwitched
from store.generations import Generation

__all__ = ["Ask", "Gate", "GateScores", "pass_gate"]

Ask = Callable[[str], Awaitable[Sequence[str]]]
"""Asks one question; gives the uri of each chunk found, best first."""

Score = Callable[[Ask], Awaitable[float]]

_CHUNKS_ASKED = 100
_PATIENCE = timedelta(seconds=30)
_REPLY_KEY = "gate"


@dataclass(frozen=True)
class Gate:
    """``score``: how good the answers are, from 0 to 1. ``max_drop``: by how much it may fall."""

    score: Score
    max_drop: float


@dataclass(frozen=True, slots=True)
class GateScores:
    """nDCG@10 of the live generation and of the new one."""

    live: float
    new: float


async def pass_gate(
    gate: Gate, answering: Answering, project: str, live: Generation, new: Generation
) -> GateScores:
    """Ask both generations.

    Raises:
        NotSwitched: the new one's score is lower by more than ``gate.max_drop``.
        Unavailable: a server or a model is down.
    """
    scores = GateScores(
        await gate.score(_asking(answering, project, live)),
        await gate.score(_asking(answering, project, new)),
    )
    if scores.live - scores.new > gate.max_drop:
        raise NotSwitched(
            f"generation {new.id} of {project} was not switched to: its nDCG@10 is "
            f"{scores.new:.4f}, and that of the live one {scores.live:.4f}: "
            f"a drop of more than {gate.max_drop:g}",
            generation=new.id,
        )
    return scores


def _asking(answering: Answering, project: str, generation: Generation) -> Ask:
    async def ask(text: str) -> Sequence[str]:
        query = Query(project=project, text=text, limit=_CHUNKS_ASKED, reply_to=_REPLY_KEY)
        answer = await answering.answer(str(uuid4()), query, _PATIENCE, generation)
        return [result.citation.uri for result in answer.results]

    return ask
