"""Fold of the log: for each document, the change with the highest rank. No I/O."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from events.models import content_hash
from events.names import DocumentKey, LogPosition, Rank
from events.streams.changes import LoggedChange

__all__ = ["Fold", "LastChange"]


@dataclass(frozen=True, slots=True)
class LastChange:
    """The change that produced a document's current version; ``deleted`` if it was a delete."""

    change: LoggedChange
    uri: str
    deleted: bool

    @property
    def key(self) -> DocumentKey:
        """DocumentKey of the document."""
        return DocumentKey(self.change.event.data.agent or "", self.uri)

    @property
    def log_position(self) -> LogPosition:
        """Log position."""
        return self.change.log_position

    @property
    def rank(self) -> Rank:
        """Rank of the change: the change with the greatest rank determines the document."""
        return self.change.rank

    @property
    def content_hash(self) -> str | None:
        """SHA-256 of the content in hex, or None for a delete."""
        data = self.change.event.data
        if self.deleted:
            return None
        if data.content_ref is not None:
            return data.content_ref.sha256
        return content_hash(data.body or "")

    @property
    def content_bytes(self) -> int:
        """Approximate size of the content to be cut."""
        data = self.change.event.data
        if self.deleted:
            return 0
        return len(data.body or "") if data.content_ref is None else data.content_ref.size_bytes

    def alone(self) -> LoggedChange:
        """The part of the change that concerns this document: a rename deletes one, writes one."""
        event = self.change.event
        data = event.data
        if self.deleted:
            update = {
                "uri": self.uri,
                "change": "delete",
                "old_uri": None,
                "content": None,
                "content_ref": None,
                "content_hash": None,
            }
        elif data.change == "rename":
            update = {"change": "upsert", "old_uri": None}
        else:
            return self.change
        document_change = event.model_copy(update={"data": data.model_copy(update=update)})
        return LoggedChange(self.change.log_position, document_change)


@dataclass
class Fold:
    """The last change of every document of one project; changes may come in any order, and twice.

    ``left_out``: log positions of changes that don't count. ``only``: log positions of the changes
    that do, or None if all others count. ``searched_event_id``: id of an event whose position is
    stored in ``found_position`` when it is read.
    """

    left_out: set[LogPosition] = field(default_factory=set)
    searched_event_id: str | None = None
    last: dict[DocumentKey, LastChange] = field(default_factory=dict)
    earliest: int | None = None
    found_position: int | None = None
    only: Container[LogPosition] | None = None

    def add(self, change: LoggedChange) -> None:
        """Add one change."""
        if self.earliest is None or change.position < self.earliest:
            self.earliest = change.position
        if change.event.id == self.searched_event_id and self.found_position is None:
            self.found_position = change.position
        if change.log_position in self.left_out or not (
            self.only is None or change.log_position in self.only
        ):
            return
        for part in _parts(change):
            former = self.last.get(part.key)
            if former is None or former.rank < part.rank:
                self.last[part.key] = part

    def newer_than(self, stored: Mapping[DocumentKey, Rank]) -> list[LastChange]:
        """Changes that are newer than the ``stored`` ranks, in the order of the log."""
        missing = [
            last for key, last in self.last.items() if key not in stored or stored[key] < last.rank
        ]
        return sorted(missing, key=lambda last: (last.log_position, last.uri))

    def older_than(self, stored: Mapping[DocumentKey, Rank]) -> list[DocumentKey]:
        """Documents whose stored version is newer than the log."""
        return sorted(
            key
            for key, rank in stored.items()
            if (last := self.last.get(key)) is None or last.rank < rank
        )

    def __iter__(self) -> Iterator[LastChange]:
        return iter(self.last.values())

    def __len__(self) -> int:
        return len(self.last)


def _parts(change: LoggedChange) -> Iterable[LastChange]:
    data = change.event.data
    yield LastChange(change, data.uri, data.change == "delete")
    if data.old_uri is not None:
        yield LastChange(change, data.old_uri, deleted=True)
