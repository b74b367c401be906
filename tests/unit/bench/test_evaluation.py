"""Scores of retrieval: hand-computed values, and errors for ill-formed sets."""

from __future__ import annotations

import json
from math import log2
from pathlib import Path

import pytest

from bench.coverage import COVERAGES, removals
from bench.evaluation import change_of, load, ndcg, recall, reciprocal_rank, summarise
from runtime.errors import UsageError


def write_set(directory: Path, **files: str) -> Path:
    texts = {
        "corpus.jsonl": json.dumps({"_id": "a", "title": "A", "text": "alpha"}),
        "queries.jsonl": json.dumps({"_id": "q", "text": "what is alpha"}),
        "qrels.tsv": "query-id\tcorpus-id\tscore\nq\ta\t1\n",
    }
    for name, text in {**texts, **files}.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def test_ndcg_discounts_grades_by_place() -> None:
    """A grade counts as its gain, divided by the logarithm of its rank."""
    grades = {"a": 3, "b": 1}
    expected = (1 / log2(2) + 3 / log2(4)) / (3 / log2(2) + 1 / log2(3))
    assert ndcg(["b", "x", "a"], grades) == pytest.approx(expected)
    assert ndcg(["a", "b"], grades) == pytest.approx(1)
    assert ndcg(["x"], grades) == 0


def test_negative_grades_count_as_zero() -> None:
    """A document that was judged harmful adds nothing to the score."""
    assert ndcg(["bad", "a"], {"a": 1, "bad": -1}) == pytest.approx(1 / log2(3))


def test_only_the_first_ten_places_count() -> None:
    """A document at rank eleven counts as not found."""
    ranked = [f"x{n}" for n in range(10)] + ["a"]
    assert ndcg(ranked, {"a": 1}) == recall(ranked, {"a": 1}) == 0
    assert reciprocal_rank(ranked, {"a": 1}) == 0


def test_recall_and_reciprocal_rank_ignore_grade_zero() -> None:
    """Grade 0 marks a document as irrelevant."""
    grades = {"a": 1, "b": 2, "c": 0}
    assert recall(["c", "a"], grades) == 0.5
    assert reciprocal_rank(["c", "a"], grades) == 0.5


def test_files_are_published_as_by_sync() -> None:
    """A title that is the path itself is left out, since a sync gives none; others are kept."""
    assert change_of("p", "src/a.py", "src/a.py", "text").data.title is None
    assert change_of("p", "src/a.py", "About a", "text").data.title == "About a"


def test_summary_averages_over_queries() -> None:
    """An answered query and a missed one give a mean of a half."""
    summary = summarise({"q": ["a"], "r": []}, {"q": {"a": 1}, "r": {"b": 1}}, [1.0, 3.0])
    assert summary["ndcg@10"] == summary["recall@10"] == summary["mrr@10"] == 0.5
    assert summary["p50_ms"] == 2.0


def test_summary_of_one_query() -> None:
    """A single latency equals all of its percentiles."""
    assert summarise({"q": ["a"]}, {"q": {"a": 1}}, [4.0])["p99_ms"] == 4.0


def test_a_set_is_read_whole(tmp_path: Path) -> None:
    """Documents, judged queries and grades are loaded unchanged, without unjudged queries."""
    unjudged = json.dumps({"_id": "u", "text": "unjudged"})
    decision = json.dumps({"_id": "q", "text": "what is alpha"})
    found = load(write_set(tmp_path, **{"queries.jsonl": f"{decision}\n\n{unjudged}\n"}))
    assert found.documents == [("a", "A", "alpha")]
    assert found.queries == {"q": "what is alpha"}
    assert found.grades == {"q": {"a": 1}}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("corpus.jsonl", "{", "line 1 is not JSON"),
        ("corpus.jsonl", '{"_id": "a"}', "must be an object"),
        ("corpus.jsonl", "[1]", "must be an object"),
        ("corpus.jsonl", "", "no documents"),
        ("queries.jsonl", '{"_id": 3, "text": "x"}', "must be an object"),
        ("qrels.tsv", "head\nq a 1\n", "line 2 must be"),
        ("qrels.tsv", "head\nq\ta\thigh\n", "line 2 must be"),
        ("qrels.tsv", "head\n", "no queries"),
    ],
)
def test_an_ill_formed_file_is_named(tmp_path: Path, name: str, text: str, words: str) -> None:
    """The error gives the line and its fault."""
    with pytest.raises(UsageError, match=words):
        load(write_set(tmp_path, **{name: text}))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The error names the missing file and the files of a set."""
    (write_set(tmp_path) / "qrels.tsv").unlink()
    with pytest.raises(UsageError, match=r"qrels\.tsv is missing: an evaluation set has"):
        load(tmp_path)


def test_each_coverage_keeps_its_share_of_the_chunks() -> None:
    """Each document loses its vectors once, and each step leaves the wanted coverage."""
    chunks = {document_id: 1 + document_id % 7 for document_id in range(200)}
    total = sum(chunks.values())
    removed: list[int] = []
    for (coverage, documents), wanted in zip(removals(chunks), COVERAGES, strict=True):
        removed += documents
        left = total - sum(chunks[document_id] for document_id in removed)
        assert coverage == wanted
        assert coverage * total <= left < coverage * total + max(chunks.values())
    assert sorted(removed) == sorted(chunks)
