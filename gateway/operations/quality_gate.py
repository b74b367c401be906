"""Quality gate of a replay: the new generation must not score much worse than the live one."""

from __future__ import annotations

import statistics
from pathlib import Path

from bench.evaluation import DEPTH, load_questions, ndcg
from processors.replay.quality_gate import Ask, EvaluationGate
from runtime.errors import UsageError

__all__ = ["gate_of"]


_QUERY_CHARACTERS = 2000


def gate_of(directory: Path, max_drop: float) -> EvaluationGate:
    """Gate on the mean nDCG@10 over the questions of a set, whose document ids are uris.

    Raises:
        UsageError: the set is ill-formed, or the drop is not between 0 and 1.
    """
    if not 0 <= max_drop <= 1:
        raise UsageError(f"--max-drop must be from 0 to 1, not {max_drop:g}")
    questions = load_questions(directory)

    async def score(ask: Ask) -> float:
        scores = []
        for query, text in questions.queries.items():
            uris = list(dict.fromkeys(await ask(text[:_QUERY_CHARACTERS])))
            scores.append(ndcg(uris, questions.grades[query], DEPTH))
        return statistics.fmean(scores)

    return EvaluationGate(score, max_drop)
