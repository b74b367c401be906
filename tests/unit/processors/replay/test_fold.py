"""Fold of the log: a document's last change counts, in any order of reading."""

from __future__ import annotations

import json
import tracemalloc
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.models import (
    ContentReference,
    DocumentChange,
    DocumentChanged,
    Origin,
    content_hash,
)
from events.names import DocumentKey, LogPosition, Rank
from events.streams.changes import LoggedChange
from processors.replay.fold import Fold, FoldedDocument, Rows, parts_of


def change(position: int, uri: str, partition: int = 0, **data: Any) -> LoggedChange:
    """Change by position; by default an upsert whose text is the position."""
    if data.get("change") != "delete":
        data = {"content": str(position)} | data
    changed = DocumentChanged(
        id=f"event-{position}", data=DocumentChange(project="docs", uri=uri, **data)
    )
    return LoggedChange(LogPosition(position, partition), changed)


def of_docs(revision: int) -> Origin:
    """Origin of the source at a revision."""
    return Origin(source="d" * 32, revision=revision)


HISTORY = [
    change(10, "a"),
    change(20, "a"),
    change(30, "b"),
    change(40, "c", change="rename", old_uri="b"),
    change(50, "d"),
    change(60, "d", change="delete"),
    change(70, "a", agent="ada"),
]


def folded(changes: list[LoggedChange], **options: Any) -> Fold:
    """Fold of the changes."""
    fold = Fold(**options)
    for one in changes:
        fold.add(one)
    return fold


def stored_position(fold: Fold) -> dict[DocumentKey, tuple[LogPosition, bool]]:
    """Log position and deletion of each document."""
    return {one.key: (one.log_position, one.deleted) for one in fold}


def uris(fold: Fold, rows: Rows) -> list[str]:
    """Uris of the documents in rows."""
    return [fold.key(row).uri for row in rows.tolist()]


EXPECTED = {
    ("", "a"): ((20, 0), False),
    ("", "b"): ((40, 0), True),
    ("", "c"): ((40, 0), False),
    ("", "d"): ((60, 0), True),
    ("ada", "a"): ((70, 0), False),
}


def test_the_last_change_stands_in_any_order_and_twice() -> None:
    for order in list(permutations(HISTORY))[::97]:
        assert stored_position(folded([*order, *order])) == EXPECTED


def test_a_newer_revision_of_a_source_stands_wherever_it_lies_in_the_log() -> None:
    """A source's change ranks by its revision, and an agent's by its position."""
    history = [
        change(70, "a", origin=of_docs(10)),
        change(60, "a", origin=of_docs(50)),
        change(40, "a"),
        change(80, "b", change="rename", old_uri="a", origin=of_docs(20)),
        change(55, "b"),
    ]
    expected = {("", "a"): ((60, 0), False), ("", "b"): ((55, 0), False)}
    for order in permutations(history):
        assert stored_position(folded(list(order))) == expected


def test_a_change_that_is_left_out_leaves_the_former_version() -> None:
    fold = folded(HISTORY, left_out={(20, 0), (40, 0)})
    assert stored_position(fold)[DocumentKey("", "a")] == ((10, 0), False)
    assert stored_position(fold)[DocumentKey("", "b")] == ((30, 0), False)
    assert ("", "c") not in stored_position(fold)


def test_equal_positions_are_distinguished_by_partition() -> None:
    fold = folded([change(10, "a", partition=1), change(10, "a", partition=0)])
    assert stored_position(fold)[DocumentKey("", "a")] == ((10, 1), False)


def test_what_is_missing_comes_in_the_order_of_the_log() -> None:
    fold = folded(HISTORY)
    stored: dict[tuple[str, str], Rank] = {
        ("", "a"): (20, 20, 0),
        ("", "b"): (30, 30, 0),
        ("ada", "a"): (70, 70, 0),
        ("", "unlisted"): (5, 5, 0),
    }
    for (agent, uri), rank in stored.items():
        fold.mark_stored(DocumentKey(agent, uri), rank)
    assert uris(fold, fold.missing()) == ["b", "c", "d"]
    assert uris(fold, fold.missing({LogPosition(40, 0)})) == ["d"]
    assert fold.count_stored() == 4


def test_a_stored_document_is_missing_again_after_a_newer_change() -> None:
    """A newer change makes a stored document missing, also if the fold did not have it before."""
    fold = folded([change(10, "a")])
    fold.mark_stored(DocumentKey("", "a"), (10, 10, 0))
    fold.mark_stored(DocumentKey("", "b"), (20, 20, 0))
    assert not len(fold.missing())
    fold.add(change(20, "b"))
    assert not len(fold.missing())
    for newer in (change(30, "b"), change(40, "a")):
        fold.add(newer)
    assert uris(fold, fold.missing()) == ["b", "a"]
    assert fold.is_stored(DocumentKey("", "b"))
    assert not fold.is_stored(DocumentKey("", "c"))


def test_a_document_may_be_copied_until_it_is_stored_or_has_a_newer_change() -> None:
    """What is stored, what has a newer change, and what could not be copied is not copyable."""
    fold = folded([change(number, uri) for number, uri in enumerate("abcd")])
    for row in range(4):
        fold.mark_carried(row)
    fold.mark_stored(DocumentKey("", "a"), (0, 0, 0))
    fold.add(change(9, "b"))
    fold.unmark_carried(fold.rows_of([DocumentKey("", "c")]))
    rows = np.arange(4)
    assert fold.copyable(rows).tolist() == [False, False, False, True]


def test_what_the_fold_keeps_is_what_the_change_says() -> None:
    origin = of_docs(20)
    fold = folded([change(10, "a", agent="ada", origin=origin)])
    assert list(fold) == [
        FoldedDocument(
            DocumentKey("ada", "a"), LogPosition(10, 0), origin, content_hash("10"), 2, entry=0
        )
    ]
    assert fold.find(DocumentKey("", "a")) is None


def test_a_document_is_restored_from_json() -> None:
    """What another process is told of a document is what the fold has of it."""
    changes = [
        change(7, "a.md", agent="ada", origin=of_docs(3)),
        change(9, "ü.md", change="delete"),
    ]
    documents = list(folded(changes))
    restored = [FoldedDocument.from_json(json.loads(json.dumps(d.as_json()))) for d in documents]
    assert restored == documents


def test_an_archived_change_is_not_read_from_its_stream() -> None:
    """The stream entry of a change is known until the change is read from the archive too."""
    fold = Fold()
    for entry, expected in ((77, 77), (0, 0), (88, 0)):
        fold.add(change(10, "a"), entry)
        assert fold[0].entry == expected


def test_a_purged_change_is_a_delete_when_it_is_read_again() -> None:
    fold = folded([change(10, "a")])
    for last in parts_of(change(10, "a", change="delete")):
        fold.refresh(last)
    assert fold[0].deleted
    assert fold.deleted(np.arange(1)).tolist() == [True]


def test_a_rename_is_one_write_and_one_delete() -> None:
    written, deleted = [last.alone().event.data for last in parts_of(HISTORY[3])]
    assert (written.change, written.old_uri, written.content) == ("upsert", None, "40")
    assert (deleted.uri, deleted.change, deleted.content) == ("b", "delete", None)


def test_the_content_hash_is_known_without_the_content() -> None:
    fold = folded(HISTORY)
    for uri, expected in (("a", content_hash("20")), ("d", None)):
        document = fold.find(DocumentKey("", uri))
        assert document is not None
        assert document.content_hash == expected


def test_a_document_takes_less_than_200_bytes() -> None:
    """The fold has room for millions of documents with marks in memory.

    Its table of rows doubles at 10,923 documents, and is then emptier than at any other number.
    """
    documents = 11_000
    data = DocumentChange(
        project="docs",
        uri="a",
        content_ref=ContentReference(sha256="0" * 64, size_bytes=100),
        origin=of_docs(20),
    )
    event = DocumentChanged(data=data)
    tracemalloc.start()
    try:
        fold = Fold()
        for number in range(documents):
            uri = f"docs/section-{number % 100}/a-page-with-a-long-name-{number}.md"
            changed = event.model_copy(update={"data": data.model_copy(update={"uri": uri})})
            fold.add(LoggedChange(LogPosition(number, 0), changed))
            fold.mark_stored(DocumentKey("", uri), (20, number, 0))
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(fold) == documents
    assert used_bytes / documents < 200


@pytest.mark.parametrize(
    ("searched_event_id", "found_position"), [("event-30", 30), ("other", None)]
)
def test_an_event_is_found_on_the_way(searched_event_id: str, found_position: int | None) -> None:
    assert folded(HISTORY, searched_event_id=searched_event_id).found_position == found_position
    assert folded(HISTORY).earliest == 10


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["upsert", "delete", "rename"])),
        max_size=12,
    )
)
def test_the_fold_is_what_applying_one_by_one_gives(steps: list[tuple[str, str]]) -> None:
    """The fold equals the result of applying the changes in order."""
    changes: list[LoggedChange] = []
    oracle: dict[str, tuple[int, bool]] = {}
    for position, (uri, kind) in enumerate(steps, 1):
        if kind == "rename":
            old = "abc"[("abc".index(uri) + 1) % 3]
            changes.append(change(position, uri, change="rename", old_uri=old))
            oracle[old] = (position, True)
        else:
            changes.append(change(position, uri, change=kind))
        oracle[uri] = (position, kind == "delete")
    fold = folded(changes[::-1])
    assert {one.key.uri: (one.log_position[0], one.deleted) for one in fold} == oracle
