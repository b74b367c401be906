"""Screens of evaluations: saved scores as table and plot, and two of them compared."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from gateway.operations.paired_scores import Comparison, Difference, differences
from gateway.operations.paired_scores import compare as compare_pair
from gateway.web.visits import Visit
from runtime.errors import UsageError
from store.generations.evaluations import Evaluation

__all__ = ["compare", "show"]

_SHOWN_QUESTIONS = 200


async def show(visit: Visit) -> Response:
    """List the saved evaluations of a project, newest first."""
    return visit.render("evaluations.html", rows=await visit.operations.evaluations(visit.project))


async def compare(visit: Visit) -> Response:
    """Show one evaluation or, with two, the difference of each question, largest loss first."""
    first, second = visit.parameter("a"), visit.parameter("b")
    after = await visit.operations.evaluation(second or first)
    before = await visit.operations.evaluation(first) if second and first else None
    rows = differences(before, after)
    comparison, refusal = _compared(before, after)
    return visit.render(
        "evaluation.html",
        before=before,
        after=after,
        interval=comparison and comparison.interval,
        refusal=refusal,
        rows=rows[:_SHOWN_QUESTIONS],
        hidden=max(0, len(rows) - _SHOWN_QUESTIONS),
        **_counts(rows),
    )


def _counts(rows: Sequence[Difference]) -> dict[str, int]:
    """Count the questions with a lower, a higher and the same score in the second evaluation."""
    worse = sum(row.change < 0 for row in rows)
    better = sum(row.change > 0 for row in rows)
    return {"worse": worse, "better": better, "equal": len(rows) - worse - better}


def _compared(
    before: Evaluation | None, after: Evaluation
) -> tuple[Comparison | None, UsageError | None]:
    """Return the comparison of two evaluations, or the reason why they can't be compared.

    Both are None for a single evaluation. Its questions are listed in any case: a set that has
    changed a little still shows which questions became worse.
    """
    if before is None:
        return None, None
    try:
        return compare_pair(before, after), None
    except UsageError as error:
        return None, error
