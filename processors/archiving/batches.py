"""Batches of stream entries that the archiver works on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from events.change_log import StreamedChange, streamed_change
from events.entries import Entry
from events.names import Lane
from runtime import metrics
from runtime.errors import MalformedEvent

__all__ = ["MOST_BYTES", "MOST_ENTRIES", "Batch", "Place", "Sorted", "places_of", "sort_out"]

log = structlog.get_logger(__name__)

MOST_ENTRIES = 2_000
MOST_BYTES = 4 * 2**20

Place = tuple[Lane, int]
"""A stream of changes: lane and partition."""


@dataclass
class Batch:
    """Entries by stream; ``size_bytes`` counts their fields."""

    entries: dict[Place, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0
    size_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Return whether the batch should be archived before more is read."""
        return self.count >= MOST_ENTRIES or self.size_bytes >= MOST_BYTES

    def add(self, place: Place, entries: Sequence[Entry]) -> None:
        """Add entries of a stream."""
        self.entries[place] += entries
        self.count += len(entries)
        self.size_bytes += sum(len(value) for entry in entries for value in entry.fields.values())


@dataclass(frozen=True)
class Sorted:
    """The changes of a batch by project. ``skipped``: ids of entries that are not changes."""

    changes: Mapping[str, list[StreamedChange]]
    skipped: Mapping[Place, list[str]]


def sort_out(batch: Batch) -> Sorted:
    """Parse every entry. Entries that are not changes are skipped: the indexer handles them."""
    changes: dict[str, list[StreamedChange]] = defaultdict(list)
    skipped: dict[Place, list[str]] = defaultdict(list)
    for place, entries in batch.entries.items():
        for entry in entries:
            try:
                change = streamed_change(*place, entry)
            except MalformedEvent as error:
                skipped[place].append(entry.id)
                metrics.CHANGES_NOT_ARCHIVED.inc(reason=error.code)
                log.warning("archiver.entry_skipped", entry_id=entry.id, reason=str(error))
            else:
                changes[change.project].append(change)
    return Sorted(changes, skipped)


def places_of(changes: Iterable[StreamedChange]) -> Mapping[Place, list[str]]:
    """Ids of the entries that hold changes, by stream."""
    entry_ids: dict[Place, list[str]] = defaultdict(list)
    for change in changes:
        entry_ids[change.own.lane, change.own.partition].append(change.own.entry_id)
    return entry_ids
