"""Indexing during repeated switches: it retries, then gives up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from faust.types import TP

from events.models import DocumentChange, DocumentChanged
from events.names import Lane, LogPosition, Topic
from events.signatures import Keys
from events.transport import InFlightEntry
from processors.admission import KeyRing, Limits
from processors.deliveries import Settlement
from processors.embedding.keyword_precedence import Precedence
from processors.indexing.intake import ChangeIntake
from processors.indexing.pipeline import MOST_MOVES, Indexing
from processors.indexing.preparation import Prepared, Preparer
from processors.indexing.realigner import Realigner
from processors.indexing.reports import Change, Reporter
from processors.recipes import RecipeNotices
from store.documents.pending import PendingVectors
from store.generations.catalog import Generation, Recipe
from store.generations.switch import GenerationMoved
from store.store import Store
from store.types import Applied, DocumentWrite


class Restless(Store):
    """Store whose live generation changes at each of the first ``moves`` writes."""

    def __init__(self, moves: int) -> None:
        self.moves = moves

    async def handled(self, changes: Sequence[Any], proofs: Mapping[Any, str] = {}) -> set[Any]:
        return set()

    async def generation(self, project: str) -> Generation:
        return Generation(self.moves, 1, "live", Recipe("m"), datetime.now(UTC))

    async def apply(
        self, writes: Sequence[DocumentWrite], *, may_be_late: bool = True
    ) -> list[Applied]:
        if self.moves:
            self.moves -= 1
            raise GenerationMoved("another one is live")
        return []


class Recording(Preparer):
    """Preparer that records the generations."""

    def __init__(self) -> None:
        self.asked_for: list[int] = []

    async def prepare(self, changes: Any, generation: Generation, urgency: Any) -> Prepared:
        self.asked_for.append(generation.id)
        return Prepared([], [])


class Silent(Reporter):
    """Reporter that publishes nothing."""

    def __init__(self) -> None: ...

    async def finish(self, results: Any, generation_id: int) -> None: ...


class Complete(PendingVectors):
    """Vectors without pending chunks."""

    def __init__(self) -> None: ...


def _change() -> Change:
    event = DocumentChanged(data=DocumentChange(project="p", uri="a.md", content="text"))
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


async def _no_keys(_: str) -> Keys:
    return Keys()


async def _index(moves: int) -> list[int]:
    preparer = Recording()
    key_ring, notices = KeyRing(_no_keys), RecipeNotices(None)
    store, reporter = Restless(moves), Silent()
    intake = ChangeIntake(store, key_ring, Complete(), reporter, Limits())
    rest = reporter, Precedence(), Unneeded()
    indexing = Indexing(store, intake, preparer, notices, *rest)
    await indexing.run([_change()])
    return preparer.asked_for


@pytest.mark.parametrize("moves", [0, 1, MOST_MOVES])
async def test_changes_are_prepared_for_each_generation_that_comes(moves: int) -> None:
    """Changes are prepared again until their generation is live at the write."""
    assert await _index(moves) == list(range(moves, -1, -1))


async def test_in_the_end_they_wait_like_after_any_outage() -> None:
    """After too many switches the changes fail and stay pending."""
    with pytest.raises(GenerationMoved):
        await _index(MOST_MOVES + 1)
