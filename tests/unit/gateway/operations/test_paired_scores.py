"""Comparison of two evaluations: pairs of questions, intervals, and sets that differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gateway.operations.comparison_plot import render
from gateway.operations.paired_scores import Comparison, compare, compare_all, differences
from runtime.errors import UsageError
from store.generations.evaluations import Evaluation, QuestionScore


def evaluation(number: int, scores: Mapping[str, float], mode: str = "hybrid") -> Evaluation:
    questions = [
        QuestionScore(
            id=key, text=f"text of {key}", ndcg=score, recall=1, mrr=1, uris=[f"{key}.md"]
        )
        for key, score in scores.items()
    ]
    return Evaluation(
        id=str(number),
        project="eval-locks-1",
        set_name="locks",
        mode=mode,
        generation=number,
        model="local/hash-384",
        chunking="2",
        scores={},
        questions=questions,
        created_at=datetime(2026, 11, 23, tzinfo=UTC),
    )


def compared(changes: list[float]) -> Comparison:
    before = evaluation(1, {f"q{n}": 0.5 for n in range(len(changes))})
    after = evaluation(2, {f"q{n}": 0.5 + change for n, change in enumerate(changes)})
    return compare(before, after)


def test_questions_are_paired_by_id() -> None:
    """Won, lost and tied questions are counted; the largest change comes first."""
    comparison = compared([0.1, -0.3, 0.0, 0.2])
    assert (comparison.won, comparison.lost, comparison.tied) == (2, 1, 1)
    assert comparison.difference == pytest.approx(0.0)
    assert [row.question for row in comparison.changed(2)] == ["q1", "q3"]
    assert [row.question for row in comparison.changed(9)] == ["q1", "q3", "q0"]
    assert [row.question for row in comparison.differences] == ["q1", "q2", "q0", "q3"]


@pytest.mark.parametrize(
    ("count", "student_t"), [(2, 12.706), (3, 4.303), (11, 2.228), (30, 2.045)]
)
def test_the_interval_is_that_of_student_s_t(count: int, student_t: float) -> None:
    """The values of t are those of the usual tables, for odd and even degrees of freedom."""
    changes = [0.1 if n % 2 else 0.0 for n in range(count)]
    mean = sum(changes) / count
    error = (sum((change - mean) ** 2 for change in changes) / (count - 1) / count) ** 0.5
    expected = (mean - student_t * error, mean + student_t * error)
    assert compared(changes).interval == pytest.approx(expected, abs=1e-4)


def test_a_single_question_has_no_interval() -> None:
    assert compared([0.1]).interval is None


def test_a_question_of_one_evaluation_only_is_listed() -> None:
    """The page shows it with an unknown score; its change counts from 0."""
    rows = differences(evaluation(1, {"q": 0.4}), evaluation(2, {"r": 0.3}))
    assert [(row.question, row.before, row.after) for row in rows] == [
        ("q", 0.4, None),
        ("r", None, 0.3),
    ]


def test_evaluations_of_different_sets_are_refused() -> None:
    """Names, documents and questions must be the same."""
    before = evaluation(1, {"q": 0.4})
    others = {
        "different sets: locks and weirs": replace(before, set_name="weirs"),
        "documents of evaluations 1 and 1 differ": replace(before, project="eval-locks-2"),
        "did not ask the same questions": evaluation(2, {"r": 0.4}),
    }
    for words, other in others.items():
        with pytest.raises(UsageError, match=words):
            compare(before, other)


def test_named_evaluations_are_paired_by_set_and_mode() -> None:
    """A mode of one side only is left out; two single evaluations may differ in their modes."""
    hybrid, keyword = evaluation(1, {"q": 0.4}), evaluation(2, {"q": 0.2}, "keyword")
    later = evaluation(3, {"q": 0.6})
    [both] = compare_all([hybrid, keyword], [later])
    assert (both.mode, both.before, both.after) == ("hybrid", 0.4, 0.6)
    [single] = compare_all([keyword], [later])
    assert single.mode == "keyword → hybrid"
    with pytest.raises(UsageError, match=r"share no set and mode: locks \(hybrid\), locks"):
        compare_all([hybrid, keyword], [evaluation(4, {"q": 1.0}, "vector")])


def test_the_plot_encloses_each_interval() -> None:
    """Dots and lines lie between the outer ticks; a name of a set is escaped."""
    gain, loss = compared([0.1, 0.2, 0.15]), compared([-0.1, -0.2])
    named = replace(gain, set_name='<b>"locks"</b> of a name that is much too long to fit')
    svg = render([named, loss], "A & B", "C")
    assert "&lt;b&gt;" in svg
    assert "<b>" not in svg
    assert "nDCG@10 of C less that of A &amp; B" in svg
    xs = [float(part.split('"')[0]) for part in svg.split('<circle cx="')[1:]]
    assert len(xs) == 2
    assert all(240 <= x <= 640 for x in xs)
    assert svg.count('stroke="#1b6e3c"') == 1
    assert svg.count('stroke="#5f6368"') == 1
