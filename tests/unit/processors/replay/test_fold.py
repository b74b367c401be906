"""Fold of the log: a document's last change counts, in any order of reading."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.models import DocumentChange, DocumentChanged, Origin, content_hash
from events.names import DocumentKey, LogPosition
from events.streams.changes import LoggedChange
from processors.replay.fold import Fold


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
    stored = {
        DocumentKey("", "a"): (20, 20, 0),
        DocumentKey("", "b"): (30, 30, 0),
        DocumentKey("ada", "a"): (70, 70, 0),
    }
    missing = fold.newer_than(stored)
    assert [one.uri for one in missing] == ["b", "c", "d"]


def test_what_the_log_lacks_is_named() -> None:
    fold = folded(HISTORY)
    stored = {
        DocumentKey("", "a"): (25, 25, 0),
        DocumentKey("", "c"): (40, 40, 0),
        DocumentKey("", "z"): (1, 1, 0),
    }
    assert fold.older_than(stored) == [("", "a"), ("", "z")]


def test_a_rename_is_one_write_and_one_delete() -> None:
    fold = folded(HISTORY)
    written = fold.last[DocumentKey("", "c")].alone().event.data
    assert (written.change, written.old_uri, written.content) == ("upsert", None, "40")
    deleted = fold.last[DocumentKey("", "b")].alone().event.data
    assert (deleted.uri, deleted.change, deleted.content) == ("b", "delete", None)


def test_the_content_hash_is_known_without_the_content() -> None:
    fold = folded(HISTORY)
    assert fold.last[DocumentKey("", "a")].content_hash == content_hash("20")
    assert fold.last[DocumentKey("", "d")].content_hash is None


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
    assert {one.uri: (one.log_position[0], one.deleted) for one in fold} == oracle
