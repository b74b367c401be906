"""Indexing during repeated switches: it retries, then gives up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from faust.types import TP

from events.models import DocumentChange, DocumentChanged
from events.names import Lane, LogPosition, Topic
from events.signatures import Keys
from events.streams.changes import LoggedChange
from events.transport import InFlightEntry
from processors.admission import KeyRing, Limits
from processors.deliveries import Settlement
from processors.embedding.keyword_precedence import Precedence
from processors.indexing.intake import ChangeIntake
from processors.indexing.pipeline import MOST_MOVES, Indexing
from processors.indexing.preparation import EmbeddedDocument, Group, Prepared, Preparer
from processors.indexing.realigner import Realigner
from processors.indexing.reports import Change, Reporter
from processors.recipes import RecipeNotices
from store.documents.pending import PendingVectors
from store.generations.catalog import Generation, Recipe
from store.generations.switch import GenerationMoved
from store.store import Store
from store.types import Applied, DocumentWrite
from tests.support.writes import document_write


class Restless(Store):
    """Store whose live generation changes at each of the first ``moves`` writes.

    That of the project ``calm`` never changes.
    """

    def __init__(self, moves: int) -> None:
        self.moves = moves

    async def handled(self, changes: Sequence[Any], proofs: Mapping[Any, str] = {}) -> set[Any]:
        return set()

    async def live_generations(self, projects: Collection[str]) -> dict[str, Generation]:
        return {
            project: Generation(
                -1 if project == "calm" else self.moves, 1, "live", Recipe("m"), datetime.now(UTC)
            )
            for project in projects
        }

    async def apply(
        self, writes: Sequence[DocumentWrite], *, may_be_late: bool = True
    ) -> list[Applied]:
        if self.moves and writes[0].project != "calm":
            self.moves -= 1
            raise GenerationMoved("another one is live")
        return [Applied(write.event_id, "indexed") for write in writes]

    async def apply_together(self, writes: Sequence[DocumentWrite]) -> None:
        return None


class Recording(Preparer):
    """Preparer that records the generations."""

    def __init__(self) -> None:
        self.asked_for: list[tuple[str, int]] = []

    async def prepare_groups(self, groups: Sequence[Group], urgency: Any) -> list[Prepared]:
        self.asked_for += [
            (change.event.data.project, generation.id)
            for changes, generation in groups
            for change in changes
        ]
        return [Prepared([_document(change) for change in changes], []) for changes, _ in groups]


def _document(change: LoggedChange) -> EmbeddedDocument:
    data = change.event.data
    write = document_write(data.uri, change.position, project=data.project)
    return EmbeddedDocument(change, write)


class Silent(Reporter):
    """Reporter that publishes nothing."""

    def __init__(self) -> None: ...

    async def finish(self, results: Any) -> None: ...


class Complete(PendingVectors):
    """Vectors without pending chunks."""

    def __init__(self) -> None: ...


def _change(project: str) -> Change:
    event = DocumentChanged(data=DocumentChange(project=project, uri="a.md", content="text"))
    return Change(
        event=event,
        topic=Topic.CHANGED_LIVE,
        entry=InFlightEntry(TP(Topic.CHANGED_LIVE.value, 0), "1-0", {b"event": event.to_bytes()}),
        own=LogPosition.of_entry(Lane.LIVE, 0, "1-0"),
        log_position=LogPosition(1, 0),
        settlement=cast("Settlement", None),
    )


class Unneeded(Realigner):
    """Realigner without late changes."""

    def __init__(self) -> None: ...


async def _no_keys(projects: Collection[str]) -> dict[str, Keys]:
    return dict.fromkeys(projects, Keys())


async def _index(moves: int, *projects: str) -> list[tuple[str, int]]:
    """Index a change of each project; return the projects and generations of its preparations."""
    preparer = Recording()
    key_ring, notices = KeyRing(_no_keys), RecipeNotices(None)
    store, reporter = Restless(moves), Silent()
    intake = ChangeIntake(store, key_ring, Complete(), reporter, Limits())
    rest = reporter, Precedence(), Unneeded()
    indexing = Indexing(store, intake, preparer, notices, *rest)
    await indexing.run([_change(project) for project in projects])
    return preparer.asked_for


@pytest.mark.parametrize("moves", [0, 1, MOST_MOVES])
async def test_changes_are_prepared_for_each_generation_that_comes(moves: int) -> None:
    """Changes are prepared again until their generation is live at the write."""
    assert await _index(moves, "p") == [("p", number) for number in range(moves, -1, -1)]


async def test_only_projects_that_were_switched_are_prepared_again() -> None:
    """A switch of one project does not repeat the work for the others of the batch."""
    assert await _index(1, "calm", "p") == [("calm", -1), ("p", 1), ("p", 0)]


async def test_in_the_end_they_wait_like_after_any_outage() -> None:
    """After too many switches the changes fail and stay pending."""
    with pytest.raises(GenerationMoved):
        await _index(MOST_MOVES + 1, "calm", "p")
