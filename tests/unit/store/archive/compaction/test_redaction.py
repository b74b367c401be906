"""Redaction of purged changes."""

from __future__ import annotations

import json
from typing import Any

from events.models import Origin
from events.names import DocumentKey, LogPosition
from events.streams.changes import LoggedChange
from processors.replay.fold import Fold
from store.archive.claims import claim
from store.archive.compaction.redaction import redacted
from store.archive.event_files import line_of
from tests.support.changes import at, logged

BEFORE = {DocumentKey("", "b"): LogPosition(at(9), 0)}


def line(change: LoggedChange) -> bytes:
    (claimed,) = claim([change]).changes
    return line_of(claimed).raw


def purged(change: LoggedChange) -> dict[str, Any] | None:
    """Data of the redacted event, or None if the line stays unchanged."""
    found = redacted(line(change), BEFORE)
    if found is None:
        return None
    parsed = json.loads(found)
    assert (parsed["position"], parsed["partition"]) == (change.position, change.partition)
    assert parsed["event"]["id"] == change.event.id
    assert redacted(found, BEFORE) is None
    data: dict[str, Any] = parsed["event"]["data"]
    return data


def test_a_change_becomes_a_delete_that_says_nothing() -> None:
    """A purged change becomes a delete that keeps its position, id and source."""
    origin = Origin(source="a" * 32, revision=3)
    change = logged(
        "b", 1, "text", title="title", metadata={"by": "me"}, collections=("c",), origin=origin
    )
    assert purged(change) == {
        "project": "alpha",
        "uri": "b",
        "change": "delete",
        "origin": {"source": "a" * 32, "revision": 3},
    }


def test_a_rename_still_takes_the_old_document_away() -> None:
    """A purged rename still deletes the old document."""
    renamed = logged("b", 2, "text", change="rename", old_uri="a")
    data = purged(renamed)
    assert data == {"project": "alpha", "uri": "a", "change": "delete"}
    fold = Fold()
    fold.add(logged("a", 1, "text"))
    event = renamed.event.model_validate({**renamed.event.model_dump(), "data": data})
    fold.add(LoggedChange(renamed.log_position, event))
    assert [(last.key.uri, last.deleted) for last in fold] == [("a", True)]


def test_other_documents_and_later_changes_stay() -> None:
    """Changes of other documents, of agents, and after the purge stay."""
    assert purged(logged("a", 1, "text")) is None
    assert purged(logged("b", 1, "text", agent="ann")) is None
    assert purged(logged("a", 2, "text", change="rename", old_uri="b")) is None
    assert purged(logged("b", 9, "text")) is None
