"""Size of a write transaction."""

from __future__ import annotations

from typing import Any, cast

from faust.types import TP

from events.models import DocumentChange, DocumentChanged
from events.names import Lane, LogPosition, Topic
from events.transport import InFlightEntry
from processors.deliveries import Settlement
from processors.indexing.intake import GROUP_CHARACTERS, groups_of
from processors.indexing.reports import Change


def _change(project: str = "p", **data: Any) -> Change:
    event = DocumentChanged(data=DocumentChange(project=project, uri="a.md", **data))
    return Change(
        event=event,
        topic=Topic.CHANGED_BULK,
        entry=InFlightEntry(TP(Topic.CHANGED_BULK.value, 0), "1-0", {b"event": event.to_bytes()}),
        own=LogPosition.of_entry(Lane.BULK, 0, "1-0"),
        log_position=LogPosition(1, 0),
        settlement=cast("Settlement", None),
    )


def test_small_documents_are_written_together() -> None:
    """Small documents share a transaction."""
    assert [len(group) for group in groups_of([_change(content="text")] * 9)] == [9]


def test_text_that_travels_by_reference_counts() -> None:
    """Content by reference counts by its size, so that large files get separate transactions."""
    reference = {"sha256": "0" * 64, "size_bytes": GROUP_CHARACTERS}
    big = _change(content_ref=reference)
    assert [len(group) for group in groups_of([big] * 3)] == [1, 1, 1]


def test_each_project_has_groups_of_its_own() -> None:
    """Changes are grouped by project and keep their order."""
    changes = [_change(project, content="text") for project in "abab"]
    assert list(groups_of(changes)) == [[changes[0], changes[2]], [changes[1], changes[3]]]
