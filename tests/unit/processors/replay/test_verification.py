"""Verification of rows against the fold, document by document."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.models import DocumentChange, DocumentChanged, Origin, content_hash
from events.names import LogPosition
from events.streams.changes import LoggedChange
from processors.replay.fold import Fold
from processors.replay.verification import Comparison, Difference, NotSwitched
from runtime.errors import LimitExceeded
from store.documents.digests import StoredDigest, index_digest

DIGEST = b"d" * 32
ROW = StoredDigest("", "a", 10, 0, False, content_hash("text"), DIGEST, DIGEST, 3, 3, 0)


def fold() -> Fold:
    """Fold of a log with one document, ``a``."""
    made = Fold()
    data = DocumentChange(project="docs", uri="a", content="text")
    made.add(LoggedChange(LogPosition(10, 0), DocumentChanged(data=data)))
    return made


def reasons(*rows: StoredDigest) -> list[str]:
    """Reasons that the comparison gives for rows."""
    comparison = Comparison(fold(), {})
    for row in rows:
        comparison.add(row)
    return [difference.reason for difference in comparison.finish()]


def test_equal_rows_are_sound() -> None:
    assert reasons(ROW) == []


def test_a_refused_text_needs_no_vector() -> None:
    """A refused text needs no vector; a pending one needs one."""
    assert reasons(replace(ROW, vectors=2, refused=1)) == []
    [reason] = reasons(replace(ROW, vectors=1, refused=1))
    assert reason == "1 of its chunks have no vector of their model"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (replace(ROW, position=9), "it is at position 9, but at 10 in the log"),
        (replace(ROW, deleted=True), "it is deleted"),
        (replace(ROW, origin=Origin(source="d" * 32, revision=1)), "it is of another source"),
        (replace(ROW, content_hash="0" * 64), "it was made from other content"),
        (replace(ROW, digest=b"x" * 32), "its rows are not what was written"),
        (replace(ROW, recorded=None), "its rows are not what was written"),
        (replace(ROW, vectors=0, unvectored=3), "3 of its chunks have no vector of their model"),
        (replace(ROW, vectors=1), "2 of its chunks have no vector of their model"),
    ],
)
def test_each_difference_is_reported(row: StoredDigest, reason: str) -> None:
    assert reasons(row) == [reason]


def test_the_digests_are_those_of_the_log_and_of_the_rows() -> None:
    """Rows as they were written have the expected digest; the others have another one."""
    for row, is_equal in ((ROW, True), (replace(ROW, digest=b"x" * 32), False)):
        comparison = Comparison(fold(), {})
        comparison.add(row)
        assert (comparison.expected.digest() == comparison.digest.digest()) is is_equal
        assert comparison.digest.digest() == index_digest([row])
        assert (comparison.documents, comparison.chunks) == (1, 3)


def test_missing_and_unknown_documents_are_reported() -> None:
    assert sorted(reasons(replace(ROW, uri="b"))) == [
        "it is missing",
        "the log has no such document",
    ]


def test_a_change_that_could_not_be_processed_is_reported_once() -> None:
    refused = {LogPosition(10, 0): LimitExceeded("too long")}
    differences = Comparison(fold(), refused).finish()
    assert differences == [Difference("", "a", "can't be processed: too long")]


def test_an_error_names_three_documents_and_how_many_more() -> None:
    differences = [Difference("ada" if n else "", f"{n}.md", "gone") for n in range(5)]
    error = NotSwitched("not switched: {documents}!", differences=differences, generation=7)
    assert str(error) == (
        "not switched: 0.md: gone; 1.md (private to ada): gone; 2.md (private to ada): gone;"
        " and 2 more!"
    )
    assert (len(error.differences), error.generation) == (5, 7)
