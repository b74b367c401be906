"""Evaluation sets of judgements: the questions that agents asked, and the documents they used.

A set refers to the documents of the project, so it is evaluated on the live index, and no content
is copied. Grades: 2 for a document that was used, 1 for one that was opened, 0 for one that was
rejected, or that was shown above a document that was used and was not used itself.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.errors import NotFound, UsageError
from store.generations.judgements import StoredJudgement

__all__ = ["FeedbackSet", "feedback_set", "write"]

_GRADES = {"used": 2, "opened": 1, "rejected": 0}
_EVALUATED_MODES = frozenset({"hybrid", "vector", "keyword"})
_ID_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class FeedbackSet:
    """Questions by id as lines of queries.jsonl, and grades by question id and uri."""

    project: str
    questions: Mapping[str, Mapping[str, Any]]
    grades: Mapping[str, Mapping[str, int]]

    @property
    def uris(self) -> list[str]:
        """Every document that has a grade, in order."""
        return sorted({uri for grades in self.grades.values() for uri in grades})


def feedback_set(project: str, judgements: Iterable[StoredJudgement]) -> FeedbackSet:
    """Make a set of the judgements of a project, oldest first.

    Equal questions with equal filters of one agent are one question. Questions without a used or
    opened document are left out: no answer to them is known.

    A passage counts by its last verdict, and a document by its best passage. Results below the
    ones that were used get no grade: an agent that has found an answer may not read further.

    Raises:
        NotFound: no question has a used or opened document.
    """
    questions: dict[str, dict[str, Any]] = {}
    asked: defaultdict[str, defaultdict[str, list[StoredJudgement]]]
    asked = defaultdict(lambda: defaultdict(list))
    for judgement in judgements:
        if judgement.mode in _EVALUATED_MODES:
            question = _question(judgement)
            questions[question["_id"]] = question
            asked[question["_id"]][judgement.query_id].append(judgement)
    grades = {key: _grades(queries.values()) for key, queries in asked.items()}
    answered = {key: graded for key, graded in grades.items() if any(graded.values())}
    if not answered:
        raise NotFound(
            f"{project} has no question with a judged answer",
            "publish `query.judged` when an agent uses a result (docs/how-to/judge.md)",
        )
    return FeedbackSet(project, {key: questions[key] for key in answered}, answered)


def _question(judgement: StoredJudgement) -> dict[str, Any]:
    fields = {"text": judgement.text, "filters": judgement.filters, "agent": judgement.agent}
    used = {name: value for name, value in fields.items() if value}
    key = hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()
    return {"_id": key[:_ID_CHARACTERS], **used}


def _grades(queries: Iterable[Sequence[StoredJudgement]]) -> dict[str, int]:
    """Grades by uri of the answers to one question; a later answer replaces an earlier verdict."""
    grades: dict[str, int] = {}
    for judgements in queries:
        passages = {
            (judgement.uri, judgement.start_line): _GRADES[judgement.verdict]
            for judgement in judgements
            if judgement.verdict in _GRADES
        }
        verdicts = {uri: grade for (uri, _), grade in sorted(passages.items(), key=_by_grade)}
        lowest_used = max((row.rank for row in judgements if row.verdict == "used"), default=0)
        passed_over = {row.uri: 0 for row in judgements if row.rank < lowest_used}
        grades |= passed_over | verdicts
    return grades


def _by_grade(graded: tuple[tuple[str, int], int]) -> int:
    return graded[1]


def write(feedback: FeedbackSet, directory: Path) -> None:
    """Write corpus.jsonl, queries.jsonl and qrels.tsv; the corpus refers to the project.

    Raises:
        UsageError: the directory has one of these files, or can't be written.
    """
    corpus = [{"_id": uri, "project": feedback.project} for uri in feedback.uris]
    qrels = [
        f"{key}\t{uri}\t{grade}"
        for key, graded in feedback.grades.items()
        for uri, grade in graded.items()
    ]
    texts = {
        "corpus.jsonl": _json_lines(corpus),
        "queries.jsonl": _json_lines(feedback.questions.values()),
        "qrels.tsv": "\n".join(["query-id\tcorpus-id\tscore", *qrels, ""]),
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with (directory / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except FileExistsError:
        raise UsageError(
            f"{directory} has an evaluation set already", "name another directory with --to"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{directory} can't be written: {error.strerror}", "name another directory with --to"
        ) from None


def _json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
