"""Screens of evaluations: saved scores as table and plot, and two of them compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from gateway.web.visits import Visit
from store.generations.evaluations import Evaluation

__all__ = ["compare", "differences", "show"]

_SHOWN_QUESTIONS = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """nDCG@10 and best documents of one question in two evaluations.

    A score is None if the question was not asked there.
    """

    question: str
    text: str
    before: float | None
    after: float | None
    uris_before: Sequence[str] = ()
    uris_after: Sequence[str] = ()

    @property
    def change(self) -> float:
        """Gain of the second evaluation, or loss if negative."""
        return (self.after or 0.0) - (self.before or 0.0)


async def show(visit: Visit) -> Response:
    """List the saved evaluations of a project, newest first."""
    return visit.render("evaluations.html", rows=await visit.operations.evaluations(visit.project))


async def compare(visit: Visit) -> Response:
    """Show one evaluation or, with two, the difference of each question, largest loss first."""
    first, second = visit.parameter("a"), visit.parameter("b")
    after = await visit.operations.evaluation(second or first)
    before = await visit.operations.evaluation(first) if second and first else None
    rows = differences(before, after)
    return visit.render(
        "evaluation.html",
        before=before,
        after=after,
        rows=rows[:_SHOWN_QUESTIONS],
        hidden=max(0, len(rows) - _SHOWN_QUESTIONS),
        worse=sum(row.change < 0 for row in rows),
        better=sum(row.change > 0 for row in rows),
    )


def differences(before: Evaluation | None, after: Evaluation) -> list[Difference]:
    """Questions of both evaluations, largest loss first; without ``before``, worst score first."""
    former = {} if before is None else _scores(before)
    latter = _scores(after)
    rows = [
        Difference(
            key,
            (latter.get(key) or former[key])["text"],
            former[key]["ndcg"] if key in former else None,
            latter[key]["ndcg"] if key in latter else None,
            former[key]["uris"] if key in former else (),
            latter[key]["uris"] if key in latter else (),
        )
        for key in {**former, **latter}
    ]
    if before is None:
        return sorted(rows, key=lambda row: (row.after or 0.0, row.question))
    return sorted(rows, key=lambda row: (row.change, row.question))


def _scores(evaluation: Evaluation) -> Mapping[str, Mapping[str, Any]]:
    return {
        question.id: {"text": question.text, "ndcg": question.ndcg, "uris": question.uris}
        for question in evaluation.questions
    }
