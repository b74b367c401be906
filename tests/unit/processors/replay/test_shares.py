"""Division of the documents of a replay into shares."""

from __future__ import annotations

from array import array
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from events.names import DocumentKey, LogPosition
from processors.embedding.stage import EmbeddingCost
from processors.replay.builder import Builder
from processors.replay.fold import Fold, FoldedDocument
from processors.replay.share_process import _changed
from processors.replay.shares import SMALLEST_SHARE, _Share, shares_of

HASH = "ab" * 32


def fold_of(sizes: list[int]) -> Fold:
    """Fold of documents with contents of so many bytes, in the order of the log."""
    fold = Fold()
    for number, size in enumerate(sizes):
        position = LogPosition(number + 1, 0)
        fold.put(FoldedDocument(DocumentKey("", f"{number}.md"), position, None, HASH, size, 0))
    return fold


@pytest.mark.parametrize(
    ("documents", "processes", "expected"),
    [
        (0, 4, [0]),
        (2 * SMALLEST_SHARE - 1, 4, [2 * SMALLEST_SHARE - 1]),
        (2 * SMALLEST_SHARE, 1, [2 * SMALLEST_SHARE]),
        (2 * SMALLEST_SHARE, 4, [SMALLEST_SHARE, SMALLEST_SHARE]),
        (6 * SMALLEST_SHARE, 3, [2 * SMALLEST_SHARE] * 3),
    ],
)
def test_there_are_as_many_shares_as_are_worth_a_process(
    documents: int, processes: int, expected: list[int]
) -> None:
    """A share is not smaller than what is worth a process."""
    fold = fold_of([100] * documents)
    shares = shares_of(fold, fold.missing(), processes)
    assert [len(share) for share in shares] == pytest.approx(expected, abs=1)
    assert np.concatenate(shares).tolist() == fold.missing().tolist()


def test_no_share_is_empty_and_a_huge_file_weighs_little() -> None:
    """A file of many megabytes, most of which may be no text, does not take a share alone."""
    for sizes in ([200_000_000] + [0] * 2 * SMALLEST_SHARE, [0] * 2 * SMALLEST_SHARE + [2**30]):
        fold = fold_of(sizes)
        shares = shares_of(fold, fold.missing(), 2)
        assert [len(share) for share in shares] == pytest.approx([SMALLEST_SHARE] * 2, rel=0.03)


def test_shares_have_the_same_amount_of_text() -> None:
    """Large documents at the beginning of the log make its first share short."""
    sizes = [20_000] * SMALLEST_SHARE + [0] * SMALLEST_SHARE
    fold = fold_of(sizes)
    first, second = shares_of(fold, fold.missing(), 2)
    assert len(first) == pytest.approx(0.51 * SMALLEST_SHARE, rel=0.01)
    assert len(first) + len(second) == len(sizes)


@pytest.mark.parametrize(
    ("message", "failure"), [({"complete": True}, ""), ({"error": "no room"}, "no room")]
)
def test_a_share_adds_its_costs_and_changes(message: dict[str, Any], failure: str) -> None:
    """The replay notes what a process reports, up to its end."""
    fold = fold_of([10, 10])
    share = _Share(cast("Builder", SimpleNamespace()), fold, 2)
    notes: list[int] = []
    cost = EmbeddingCost(tokens=5, cost_usd=0.1)
    purged = FoldedDocument(DocumentKey("", "1.md"), LogPosition(2, 0), None, None, 0, 0)
    share._take({"done": 1, "cost": asdict(EmbeddingCost(tokens=2))}, notes.append)
    share._take({"done": 2, "cost": asdict(cost)}, notes.append)
    share._take({"changed": purged.as_json()}, notes.append)
    assert share._failure
    share._take(message, notes.append)
    assert (notes, share._cost, share._failure) == ([1, 2], cost, failure)
    assert fold.find(purged.key) == purged


def test_only_documents_that_changed_when_they_were_read_again_are_reported() -> None:
    """A purge may have removed the text of a document since the log was read."""
    fold = fold_of([10, 10])
    before = array("q", (hash(document.content_hash) for document in fold))
    assert not list(_changed(fold, before))
    purged = FoldedDocument(DocumentKey("", "1.md"), LogPosition(2, 0), None, None, 0, 0)
    fold.put(purged)
    assert list(_changed(fold, before)) == [purged]
