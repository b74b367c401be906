"""Evaluation sets of judgements: grades by rank, equal questions, and the files of a set."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.evaluation import load, load_questions
from events.models import Filters, Kind
from gateway.operations.feedback import feedback_set, write
from runtime.errors import NotFound, UsageError
from store.generations.judgements import StoredJudgement

FIRST = StoredJudgement(
    query_id="1",
    agent="",
    text="when do herons nest",
    mode="hybrid",
    filters={},
    uri="a.md",
    start_line=1,
    end_line=4,
    rank=1,
    verdict="shown",
    judged_at=datetime(2026, 11, 23, tzinfo=UTC),
)


def judged(*results: tuple[str, str], query_id: str = "1") -> list[StoredJudgement]:
    """Judgements of one answer: uri and verdict of each result, in order of rank."""
    return [
        replace(FIRST, query_id=query_id, uri=uri, rank=rank, verdict=verdict)
        for rank, (uri, verdict) in enumerate(results, start=1)
    ]


def test_a_use_counts_only_against_results_above_it() -> None:
    """A result below the used one has no grade: the agent may not have looked at it."""
    answer = judged(("a.md", "shown"), ("b.md", "opened"), ("c.md", "used"), ("d.md", "shown"))
    [grades] = feedback_set("docs", answer).grades.values()
    assert grades == {"a.md": 0, "b.md": 1, "c.md": 2}
    [alone] = feedback_set("docs", judged(("a.md", "used"), ("b.md", "shown"))).grades.values()
    assert alone == {"a.md": 2}
    [opened] = feedback_set("docs", judged(("a.md", "shown"), ("b.md", "opened"))).grades.values()
    assert opened == {"b.md": 1}, "nothing was used, so nothing was passed over"


def test_the_last_verdict_on_a_passage_counts_and_the_best_passage_of_a_document() -> None:
    """A rejected passage does not make a document wrong of which another passage was used."""
    used = judged(("a.md", "used"), ("b.md", "used"))
    rejected = replace(used[0], verdict="rejected")
    other_passage = replace(rejected, start_line=20, end_line=30)
    [grades] = feedback_set("docs", [*used, rejected]).grades.values()
    assert grades == {"a.md": 0, "b.md": 2}
    [grades] = feedback_set("docs", [*used, other_passage]).grades.values()
    assert grades == {"a.md": 2, "b.md": 2}


def test_equal_questions_are_one() -> None:
    """Other filters or another agent make another question; a later answer replaces verdicts."""
    later = judged(("a.md", "rejected"), ("b.md", "used"), query_id="2")
    both = feedback_set("docs", [*judged(("a.md", "used")), *later])
    assert list(both.grades.values()) == [{"a.md": 0, "b.md": 2}]
    others = [
        replace(FIRST, verdict="used"),
        replace(FIRST, verdict="used", agent="ann"),
        replace(FIRST, verdict="used", filters={"kinds": ["code"]}),
    ]
    assert len(feedback_set("docs", others).questions) == 3


@pytest.mark.parametrize(
    "judgements", [[], [FIRST], [replace(FIRST, verdict="used", mode="exact")]]
)
def test_a_project_without_an_answer_has_no_set(judgements: list[StoredJudgement]) -> None:
    with pytest.raises(NotFound, match="docs has no question with a judged answer"):
        feedback_set("docs", judgements)


def test_a_set_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Documents are references to the project; filters and agent of a question are kept."""
    private = replace(FIRST, verdict="used", agent="ann", filters={"kinds": ["code"]})
    feedback = feedback_set("docs", [*judged(("a.md", "shown"), ("b.md", "used")), private])
    directory = tmp_path / "set"
    write(feedback, directory)
    dataset = load(directory)
    assert (dataset.project, dataset.documents) == ("docs", [])
    assert dataset.grades == feedback.grades
    assert set(dataset.queries.values()) == {"when do herons nest"}
    [options] = dataset.options.values()
    assert options == {"agent": "ann", "filters": Filters(kinds=(Kind.CODE,))}
    with pytest.raises(UsageError, match="has an evaluation set already"):
        write(feedback, directory)


def test_ill_formed_references_are_refused(tmp_path: Path) -> None:
    """A set is of one project, and its filters are those of a question."""
    write(feedback_set("docs", judged(("a.md", "used"))), tmp_path)
    with (tmp_path / "corpus.jsonl").open("a") as corpus:
        corpus.write(json.dumps({"_id": "b.md", "project": "other"}) + "\n")
    with pytest.raises(UsageError, match="names several projects: docs and other"):
        load(tmp_path)
    [line] = (tmp_path / "queries.jsonl").read_text().splitlines()
    wrong = json.loads(line) | {"filters": {"kinds": ["poem"]}}
    (tmp_path / "queries.jsonl").write_text(json.dumps(wrong))
    with pytest.raises(UsageError, match=r"filters of \w+: kinds\.0"):
        load_questions(tmp_path)
