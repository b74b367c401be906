"""Retention: of the changes before a limit, compaction keeps only the last one of each document.

All later changes are kept. So the archive has the state of every document at the limit, and
everything that happened since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from events.models import Origin
from events.names import DocumentKey, LogPosition, Rank, position_at, rank_of

__all__ = ["Record", "Retention", "position_at", "time_of"]

_BITS_BELOW_MILLISECONDS = 21
_POSITION_BITS = 63
_PARTITION_BITS = 16
_KEY_BYTES = 16


def time_of(position: int) -> datetime:
    """Time at which the change at a position was published, to the millisecond."""
    return datetime.fromtimestamp((position >> _BITS_BELOW_MILLISECONDS) / 1000, UTC)


@dataclass(frozen=True, slots=True)
class Record:
    """The attributes of an archived change that compaction needs. ``content``: hash of its text."""

    project: str
    partition: int
    position: int
    documents: tuple[DocumentKey, ...]
    content: bytes | None
    origin: Origin | None = None

    @classmethod
    def of(cls, line: bytes) -> Record:
        """Parse a line of a file; a rename counts for both its documents."""
        parsed = json.loads(line)
        data = parsed["event"]["data"]
        agent = data.get("agent") or ""
        uris = (data["uri"], data["old_uri"]) if data.get("old_uri") else (data["uri"],)
        content = data.get("content_ref")
        return cls(
            data["project"],
            parsed["partition"],
            parsed["position"],
            tuple(DocumentKey(agent, uri) for uri in uris),
            bytes.fromhex(content["sha256"]) if content else None,
            Origin.model_construct(**data["origin"]) if data.get("origin") else None,
        )

    @property
    def log_position(self) -> LogPosition:
        """Log position, as ``LoggedChange.log_position``."""
        return LogPosition(self.position, self.partition)

    @property
    def rank(self) -> Rank:
        """Rank, as ``LoggedChange.rank``."""
        return rank_of(self.log_position, self.origin)


class Retention:
    """Decides which changes are dropped, after reading all changes before the limit (a position).

    With the limit 0, every change is kept. ``rejected``: log positions of changes that never took
    effect, so that none of them can be a document's last.
    """

    def __init__(self, limit: int, rejected: Collection[LogPosition]) -> None:
        self.limit = limit
        self._rejected = frozenset(rejected)
        self._last: dict[bytes, int] = {}

    def learn(self, record: Record) -> None:
        """Record a change; the order of changes, and repetitions, do not matter."""
        if self._is_young(record) or record.log_position in self._rejected:
            return
        rank = _number(record.rank)
        for document in record.documents:
            key = _key(document)
            self._last[key] = max(rank, self._last.get(key, rank))

    def keeps(self, record: Record) -> bool:
        """Return whether a change must be kept; call it after all changes were learnt."""
        if self._is_young(record):
            return True
        rank = _number(record.rank)
        return any(self._last.get(_key(document)) == rank for document in record.documents)

    def _is_young(self, record: Record) -> bool:
        return record.position >= self.limit


def _number(rank: Rank) -> int:
    """The rank as one number in the same order, which takes less memory."""
    first, position, partition = rank
    return (first << _POSITION_BITS | position) << _PARTITION_BITS | partition


def _key(document: DocumentKey) -> bytes:
    """Hash of a document's agent and uri, which takes less memory."""
    text = "\0".join(document).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=_KEY_BYTES).digest()
