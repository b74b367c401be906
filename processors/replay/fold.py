"""Fold of the log: for each document, what its change with the highest rank says. No I/O.

The fold of a large project must fit in memory, so it holds no changes. It has about 90 bytes for
each document besides its key: position, source, content hash, and the stream entry of the change.
``ProjectLog.last_changes`` reads changes again when they are needed.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from events.models import Origin, content_hash
from events.names import DocumentKey, LogPosition, Rank, rank_of
from events.streams.changes import LoggedChange
from processors.replay.document_rows import DocumentRows

__all__ = ["Fold", "FoldedDocument", "LastChange", "Rows", "parts_of"]

Rows = npt.NDArray[np.int64]
"""Rows of a fold: numbers of documents, from 0 on."""

Mask = npt.NDArray[np.bool_]

_HASH_BYTES = 32
_DELETED, _STORED, _CURRENT, _CARRIED = 1, 2, 4, 8


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
    def content_hash(self) -> str | None:
        """SHA-256 of the content in hex, or None for a delete."""
        data = self.change.event.data
        if self.deleted:
            return None
        if data.content_ref is not None:
            return data.content_ref.sha256
        return data.content_hash or content_hash(data.body or "")

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


def parts_of(change: LoggedChange) -> Iterable[LastChange]:
    """Return the documents that a change concerns: two in a rename."""
    data = change.event.data
    parts = [LastChange(change, data.uri, data.change == "delete")]
    if data.old_uri is not None:
        parts.append(LastChange(change, data.old_uri, deleted=True))
    return parts


@dataclass(frozen=True, slots=True)
class FoldedDocument:
    """Attributes of a document's last change, as far as the fold has them.

    ``content_hash``: SHA-256 of the content in hex, or None if the document is deleted. ``entry``:
    position of the stream entry with the change, or 0 if the archive has it.
    """

    key: DocumentKey
    log_position: LogPosition
    origin: Origin | None
    content_hash: str | None
    content_bytes: int
    entry: int

    @classmethod
    def of(cls, last: LastChange, entry: int) -> FoldedDocument:
        """Take what the fold needs of a change."""
        return cls(
            last.key,
            last.log_position,
            last.change.event.data.origin,
            last.content_hash,
            last.content_bytes,
            entry,
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Restore what ``as_json`` returned."""
        origin = values["origin"]
        return cls(
            DocumentKey(*values["key"]),
            LogPosition(*values["log_position"]),
            None if origin is None else Origin.model_construct(**origin),
            values["content_hash"],
            values["content_bytes"],
            values["entry"],
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "key": self.key,
            "log_position": self.log_position,
            "origin": None if self.origin is None else dict(self.origin),
            "content_hash": self.content_hash,
            "content_bytes": self.content_bytes,
            "entry": self.entry,
        }

    @property
    def deleted(self) -> bool:
        """Return whether the change was a delete."""
        return self.content_hash is None

    @property
    def rank(self) -> Rank:
        """Rank of the change: the change with the greatest rank determines the document."""
        return rank_of(self.log_position, self.origin)


@dataclass
class Fold:
    """The last change of every document of one project; changes may come in any order, and twice.

    ``left_out``: log positions of changes that don't count. ``only``: log positions of the changes
    that do, or None if all others count. ``searched_event_id``: id of an event whose position is
    stored in ``found_position`` when it is read.

    Documents have rows. A replay also marks them here: which ones its generation has, and which
    ones it may copy.
    """

    left_out: set[LogPosition] = field(default_factory=set)
    searched_event_id: str | None = None
    earliest: int | None = None
    found_position: int | None = None
    only: Container[LogPosition] | None = None
    _rows: DocumentRows = field(default_factory=DocumentRows)
    _positions: array[int] = field(default_factory=lambda: array("q"))
    _partitions: array[int] = field(default_factory=lambda: array("H"))
    _revisions: array[int] = field(default_factory=lambda: array("q"))
    _sources: array[int] = field(default_factory=lambda: array("I"))
    _entries: array[int] = field(default_factory=lambda: array("q"))
    _sizes: array[int] = field(default_factory=lambda: array("I"))
    _hashes: bytearray = field(default_factory=bytearray)
    _flags: bytearray = field(default_factory=bytearray)
    _source_ids: list[str] = field(default_factory=lambda: [""])
    _source_numbers: dict[str, int] = field(default_factory=dict)
    _unlisted: dict[DocumentKey, Rank] = field(default_factory=dict)

    def add(self, change: LoggedChange, entry: int = 0) -> None:
        """Add one change. ``entry``: position of its stream entry, or 0 for an archived change."""
        if self.earliest is None or change.position < self.earliest:
            self.earliest = change.position
        if change.event.id == self.searched_event_id and self.found_position is None:
            self.found_position = change.position
        if change.log_position in self.left_out or not (
            self.only is None or change.log_position in self.only
        ):
            return
        for part in parts_of(change):
            row = self._rows.find(part.key)
            if row is None or self.rank(row) < change.rank:
                self.put(FoldedDocument.of(part, entry))
            elif entry == 0 and self.log_position(row) == change.log_position:
                self._entries[row] = 0

    def put(self, document: FoldedDocument) -> None:
        """Set the last change of a document, whatever the fold has of it."""
        row = self._rows.add(document.key)
        if row == len(self._positions):
            self._append()
        position, partition = document.log_position
        raw_hash = bytes.fromhex(document.content_hash or "").rjust(_HASH_BYTES, b"\0")
        self._positions[row] = position
        self._partitions[row] = partition
        self._revisions[row] = 0 if document.origin is None else document.origin.revision
        self._sources[row] = self._source_number(document.origin)
        self._entries[row] = document.entry
        self._sizes[row] = document.content_bytes
        self._hashes[_HASH_BYTES * row : _HASH_BYTES * (row + 1)] = raw_hash
        stays = self._flags[row] & _STORED
        self._flags[row] = stays | (_DELETED if document.deleted else 0)
        if document.key in self._unlisted:
            self.mark_stored(document.key, self._unlisted.pop(document.key))

    def refresh(self, last: LastChange) -> None:
        """Note what a change says that was read again: a purge may have removed its text since."""
        row = self._rows.find(last.key)
        if row is not None and self.content_hash(row) != last.content_hash:
            self.put(FoldedDocument.of(last, self._entries[row]))

    def find(self, key: DocumentKey) -> FoldedDocument | None:
        """Find what the fold has of a document. Returns None if it has nothing."""
        row = self._rows.find(key)
        return None if row is None else self[row]

    def row_of(self, key: DocumentKey) -> int | None:
        """Row of a document. Returns None if the fold lacks it."""
        return self._rows.find(key)

    def rows_of(self, keys: Iterable[DocumentKey]) -> Rows:
        """Rows of documents that the fold has, in the order of the log."""
        rows = np.array([self._rows.find(key) for key in keys], np.int64)
        return self._in_log_order(rows)

    def key(self, row: int) -> DocumentKey:
        """Key of the document in a row."""
        return self._rows.key(row)

    def log_position(self, row: int) -> LogPosition:
        """Log position of the last change in a row."""
        return LogPosition(self._positions[row], self._partitions[row])

    def rank(self, row: int) -> Rank:
        """Rank of the last change in a row."""
        position = self._positions[row]
        return self._revisions[row] or position, position, self._partitions[row]

    def content_hash(self, row: int) -> str | None:
        """SHA-256 of the content in a row in hex, or None if the document is deleted."""
        if self._flags[row] & _DELETED:
            return None
        return self._hashes[_HASH_BYTES * row : _HASH_BYTES * (row + 1)].hex()

    def origin(self, row: int) -> Origin | None:
        """Source of the document in a row, with the revision of its last change."""
        revision = self._revisions[row]
        if not revision:
            return None
        source = self._source_ids[self._sources[row]]
        return Origin.model_construct(source=source, revision=revision)

    def __getitem__(self, row: int) -> FoldedDocument:
        return FoldedDocument(
            self.key(row),
            self.log_position(row),
            self.origin(row),
            self.content_hash(row),
            self._sizes[row],
            self._entries[row],
        )

    def __contains__(self, key: DocumentKey) -> bool:
        return self._rows.find(key) is not None

    def __iter__(self) -> Iterator[FoldedDocument]:
        return (self[row] for row in range(len(self)))

    def __len__(self) -> int:
        return len(self._rows)

    def mark_stored(self, key: DocumentKey, rank: Rank) -> None:
        """Note that the generation has a document, by a change of this rank."""
        row = self._rows.find(key)
        if row is None:
            self._unlisted[key] = rank
        else:
            current = 0 if rank < self.rank(row) else _CURRENT
            self._flags[row] = self._flags[row] & ~_CURRENT | _STORED | current

    def is_stored(self, key: DocumentKey) -> bool:
        """Return whether the generation has a document, in any version."""
        row = self._rows.find(key)
        return key in self._unlisted if row is None else bool(self._flags[row] & _STORED)

    def count_stored(self) -> int:
        """Number of documents that the generation has."""
        return len(self._unlisted) + len(self._flagged(_STORED, _STORED))

    def mark_carried(self, row: int) -> None:
        """Note that the live version of a document may be copied, until it has a newer change."""
        self._flags[row] |= _CARRIED

    def unmark_carried(self, rows: Rows) -> None:
        """Note that documents must be built from the log."""
        for row in rows.tolist():
            self._flags[row] &= ~_CARRIED

    def missing(self, refused: Collection[LogPosition] = ()) -> Rows:
        """Rows that the generation lacks or has in an older version, in the order of the log.

        Those whose last change is ``refused`` are left out.
        """
        ordered = self._in_log_order(self._flagged(_CURRENT, 0))
        if not refused:
            return ordered
        return ordered[[self.log_position(row) not in refused for row in ordered.tolist()]]

    def positions(self, rows: Rows) -> Rows:
        """Positions of the last changes in rows."""
        return _viewed(self._positions, np.int64)[rows]

    def entries(self, rows: Rows) -> Rows:
        """Positions of the stream entries of the last changes in rows; 0 for archived ones."""
        return _viewed(self._entries, np.int64)[rows]

    def sizes(self, rows: Rows) -> list[int]:
        """Sizes of the contents in rows, in bytes."""
        sizes: list[int] = _viewed(self._sizes, np.uint32)[rows].tolist()
        return sizes

    def deleted(self, rows: Rows) -> Mask:
        """Return which rows are of deleted documents."""
        mask: Mask = self._flags_of(rows) & _DELETED != 0
        return mask

    def absent(self, rows: Rows) -> Mask:
        """Return which rows are of existing documents that the generation has in no version."""
        mask: Mask = self._flags_of(rows) & (_STORED | _DELETED) == 0
        return mask

    def outdated(self, rows: Rows) -> Mask:
        """Return which rows the generation lacks, or has in an older version."""
        mask: Mask = self._flags_of(rows) & _CURRENT == 0
        return mask

    def copyable(self, rows: Rows) -> Mask:
        """Return which rows the generation has in no version, and may copy from the live one."""
        mask: Mask = self._flags_of(rows) & (_CARRIED | _STORED) == _CARRIED
        return mask

    def _in_log_order(self, rows: Rows) -> Rows:
        partitions = _viewed(self._partitions, np.uint16)[rows]
        return rows[np.lexsort((partitions, self.positions(rows)))]

    def _flagged(self, mask: int, value: int) -> Rows:
        return np.flatnonzero(_viewed(self._flags, np.uint8) & mask == value)

    def _flags_of(self, rows: Rows) -> npt.NDArray[np.uint8]:
        return _viewed(self._flags, np.uint8)[rows]

    def _append(self) -> None:
        """Append an empty row to every column."""
        for column in (
            self._positions,
            self._partitions,
            self._revisions,
            self._sources,
            self._entries,
            self._sizes,
        ):
            column.append(0)
        self._hashes += bytes(_HASH_BYTES)
        self._flags.append(0)

    def _source_number(self, origin: Origin | None) -> int:
        if origin is None:
            return 0
        number = self._source_numbers.setdefault(origin.source, len(self._source_ids))
        if number == len(self._source_ids):
            self._source_ids.append(origin.source)
        return number


def _viewed(column: array[int] | bytearray, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """View a column; no row can be added while the view exists."""
    return np.frombuffer(column, dtype) if column else np.empty(0, dtype)
