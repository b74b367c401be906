"""Scores of two evaluations, paired by question: differences and their interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from runtime.errors import UsageError
from store.generations.evaluations import Evaluation, QuestionScore

__all__ = ["Comparison", "Difference", "compare", "compare_all", "differences"]

_CONFIDENCE = 0.95
_SMALLEST_CHANGE = 1e-9
_BISECTIONS = 60


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """Mean nDCG@10 of two evaluations of one set, and the differences of its questions.

    ``interval`` is the 95 % interval of the mean difference (Student's t over the questions); None
    for a single question. ``differences`` begin with the largest loss.
    """

    set_name: str
    mode_before: str
    mode_after: str
    before: float
    after: float
    interval: tuple[float, float] | None
    differences: Sequence[Difference]

    @property
    def mode(self) -> str:
        """Mode of both, or both modes."""
        modes = dict.fromkeys((self.mode_before, self.mode_after))
        return " → ".join(modes)

    @property
    def difference(self) -> float:
        """Mean gain of the second evaluation, or loss if negative."""
        return self.after - self.before

    @property
    def won(self) -> int:
        """Number of questions that the second evaluation answered better."""
        return sum(row.change > _SMALLEST_CHANGE for row in self.differences)

    @property
    def lost(self) -> int:
        """Number of questions that the second evaluation answered worse."""
        return sum(row.change < -_SMALLEST_CHANGE for row in self.differences)

    @property
    def tied(self) -> int:
        """Number of questions with the same score in both."""
        return len(self.differences) - self.won - self.lost

    def changed(self, count: int) -> list[Difference]:
        """Return the questions that changed most, the largest change first."""
        rows = [row for row in self.differences if abs(row.change) > _SMALLEST_CHANGE]
        return sorted(rows, key=lambda row: (-abs(row.change), row.question))[:count]


def differences(before: Evaluation | None, after: Evaluation) -> list[Difference]:
    """Questions of both evaluations, largest loss first; without ``before``, worst score first."""
    former = {} if before is None else _by_id(before.questions)
    latter = _by_id(after.questions)
    rows = [_difference(former.get(key), latter.get(key)) for key in {**former, **latter}]
    if before is None:
        return sorted(rows, key=lambda row: (row.after or 0.0, row.question))
    return sorted(rows, key=lambda row: (row.change, row.question))


def _by_id(questions: Iterable[QuestionScore]) -> Mapping[str, QuestionScore]:
    return {question.id: question for question in questions}


def _difference(before: QuestionScore | None, after: QuestionScore | None) -> Difference:
    [question, *_] = [score for score in (after, before) if score is not None]
    return Difference(
        question.id,
        question.text,
        before.ndcg if before else None,
        after.ndcg if after else None,
        before.uris if before else (),
        after.uris if after else (),
    )


def compare(before: Evaluation, after: Evaluation) -> Comparison:
    """Compare two evaluations of the same questions over the same documents.

    Raises:
        UsageError: their sets differ, in name, documents or questions.
    """
    _check_same_set(before, after)
    rows = differences(before, after)
    return Comparison(
        set_name=after.set_name,
        mode_before=before.mode,
        mode_after=after.mode,
        before=statistics.fmean(row.before or 0.0 for row in rows),
        after=statistics.fmean(row.after or 0.0 for row in rows),
        interval=_interval([row.change for row in rows]),
        differences=rows,
    )


def compare_all(before: Sequence[Evaluation], after: Sequence[Evaluation]) -> list[Comparison]:
    """Compare the evaluations of each set and mode that are on both sides.

    If each side has a single evaluation, their modes may differ.

    Raises:
        UsageError: no set and mode is on both sides, or the sets of a pair differ.
    """
    if len(before) == len(after) == 1:
        return [compare(before[0], after[0])]
    former = {(evaluation.set_name, evaluation.mode): evaluation for evaluation in before}
    latter = {(evaluation.set_name, evaluation.mode): evaluation for evaluation in after}
    shared = sorted(former.keys() & latter.keys())
    if not shared:
        raise UsageError(
            f"the evaluations share no set and mode: {_listed(former)} and {_listed(latter)}",
            "evaluate the same directory twice",
        )
    return [compare(former[key], latter[key]) for key in shared]


def _listed(keys: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{set_name} ({mode})" for set_name, mode in sorted(keys))


def _check_same_set(before: Evaluation, after: Evaluation) -> None:
    pair = f"evaluations {before.id} and {after.id}"
    remedy = "evaluate the same directory twice"
    if before.set_name != after.set_name:
        names = f"{before.set_name} and {after.set_name}"
        raise UsageError(f"{pair} are of different sets: {names}", remedy)
    if before.project != after.project:
        projects = f"{before.project} and {after.project}"
        raise UsageError(f"the documents of {pair} differ: {projects}", remedy)
    texts = [{score.id: score.text for score in side.questions} for side in (before, after)]
    if texts[0] != texts[1] or not texts[0]:
        counts = f"{len(texts[0])} and {len(texts[1])}"
        raise UsageError(f"{pair} did not ask the same questions ({counts})", remedy)


def _interval(changes: Sequence[float]) -> tuple[float, float] | None:
    if len(changes) == 1:
        return None
    mean = statistics.fmean(changes)
    error = statistics.stdev(changes) / math.sqrt(len(changes))
    width = _student_t(len(changes) - 1) * error
    return mean - width, mean + width


@cache
def _student_t(degrees: int) -> float:
    """Value of Student's t that bounds the central 95 %, for ``degrees`` of freedom.

    It inverts the closed form of the distribution (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4),
    in the angle whose tangent is t / sqrt(degrees).
    """
    low, high = 0.0, math.pi / 2
    for _ in range(_BISECTIONS):
        angle = (low + high) / 2
        if _central_share(angle, degrees) < _CONFIDENCE:
            low = angle
        else:
            high = angle
    return math.sqrt(degrees) * math.tan(low)


def _central_share(angle: float, degrees: int) -> float:
    is_odd = degrees % 2
    term = math.cos(angle) if is_odd else 1.0
    total = 0.0 if degrees == 1 else term
    for factor in range(2 + is_odd, degrees - 1, 2):
        term *= math.cos(angle) ** 2 * (factor - 1) / factor
        total += term
    share = math.sin(angle) * total
    return 2 / math.pi * (angle + share) if is_odd else share
