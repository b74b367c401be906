"""State of a source between syncs: a cache of read files, and pending changes."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from operator import itemgetter
from typing import Any, Self

from sources.types import Skip, SyncOptions

__all__ = ["DELETED", "ReadFile", "State", "mark_of", "pending_of", "skip_of", "state_of"]

DELETED = ""
"""Index state of a deleted document."""

_VERSION = 3
_SKIPPED = "!"

ReadFile = tuple[str, str]
"""Fingerprint of a file, and the mark of its content: SHA-256 of its text, or `mark_of`."""

Pending = tuple[str, str]
"""Token of a published change, and the index state that it leads to."""

_SEPARATOR = "\0"
"""Separator that occurs in no uri, fingerprint or reason."""


def state_of(content_hash: str, collections: Iterable[str] = ()) -> str:
    """State of a document in the index, as one string to compare."""
    return "\n".join([content_hash, *sorted(set(collections))])


def mark_of(reason: Skip) -> str:
    """Mark of a file that is not a document."""
    return f"{_SKIPPED}{reason.value}"


def skip_of(mark: str) -> Skip | None:
    """Reason why a file is not a document; None if it is a document."""
    return Skip(mark[len(_SKIPPED) :]) if mark.startswith(_SKIPPED) else None


def pending_of(saved: Mapping[str, Any]) -> dict[str, Pending]:
    """Pending changes of a saved state, by uri."""
    return _unpack_pairs(saved["pending"]) if saved.get("version") == _VERSION else {}


@dataclass(slots=True)
class State:
    """State of a source after its last sync.

    Attributes:
        files: results of reading files, by uri. This is only a cache: the index records what is
            indexed.
        pending: changes without a known outcome, by uri.
        rejected: index state of a document whose change was rejected, and the reason, by uri.
        doubtful: uris for which an unfinished sync may have published changes.
        commit: commit that was synced last.
        committed_at: time of the commit in seconds since 1970.
        rules: digest of the rules that decided which files are documents.
        memory: what the source itself needs for its next listing, as a JSON object.
        options: options of the last sync; None unless it read files of a machine.
    """

    files: dict[str, ReadFile] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    rejected: dict[str, tuple[str, str]] = field(default_factory=dict)
    doubtful: frozenset[str] = frozenset()
    commit: str | None = None
    committed_at: int | None = None
    rules: str = ""
    memory: Mapping[str, Any] = field(default_factory=dict)
    options: SyncOptions | None = None

    def resolve(
        self, applied: Collection[str], rejected: Mapping[str, str], present: Collection[str]
    ) -> frozenset[str]:
        """Drop pending changes that are settled or lost; returns the uris of lost changes.

        Args:
            applied: tokens of changes that a worker has applied, or found to be superseded.
            rejected: reason by token of rejected changes.
            present: tokens of changes that wait in the log.
        """
        uris_of = Counter(token for token, _ in self.pending.values())
        lost_uris = set[str]()
        for uri, (token, target) in list(self.pending.items()):
            if token in rejected:
                # after a rejected rename, the old uri still has to be deleted by another change
                if target != DELETED or uris_of[token] == 1:
                    self.rejected[uri] = target, rejected[token]
            elif token not in applied:
                if token in present:
                    continue
                lost_uris.add(uri)
            del self.pending[uri]
        return frozenset(lost_uris)

    def to_json(self) -> dict[str, Any]:
        """Convert to a JSON object with its large parts compressed."""
        return {
            "version": _VERSION,
            "files": _pack_pairs(self.files),
            "pending": _pack_pairs(self.pending),
            "rejected": _pack_pairs(self.rejected),
            "doubtful": _compress(sorted(self.doubtful)),
            "commit": self.commit,
            "committed_at": self.committed_at,
            "rules": self.rules,
            **({"memory": _compress([json.dumps(self.memory)])} if self.memory else {}),
            **({"options": asdict(self.options)} if self.options else {}),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None) -> Self:
        """Inverse of ``to_json``; returns an empty state for None or another version."""
        if saved is None or saved.get("version") != _VERSION:
            return cls()
        return cls(
            files=_unpack_pairs(saved["files"]),
            pending=_unpack_pairs(saved["pending"]),
            rejected=_unpack_pairs(saved["rejected"]),
            doubtful=frozenset(_decompress(saved["doubtful"])),
            commit=saved["commit"],
            committed_at=saved["committed_at"],
            rules=saved["rules"],
            memory=_read_memory(saved.get("memory", "")),
            options=SyncOptions.from_json(saved.get("options")),
        )


def _read_memory(packed: str) -> Mapping[str, Any]:
    memory: Mapping[str, Any] = json.loads(_decompress(packed)[0]) if packed else {}
    return memory


def _pack_pairs(pairs: Mapping[str, tuple[str, str]]) -> str:
    """Join and compress texts: Postgres and JSON parsers need seconds for large objects."""
    first, second = (map(itemgetter(i), pairs.values()) for i in range(2))
    return _compress([*pairs, *first, *second])


def _unpack_pairs(packed: str) -> dict[str, tuple[str, str]]:
    texts = _decompress(packed)
    count = len(texts) // 3
    pairs = zip(texts[count : 2 * count], texts[2 * count :], strict=True)
    return dict(zip(texts[:count], pairs, strict=True))


def _compress(texts: Iterable[str]) -> str:
    joined = _SEPARATOR.join(texts)
    return base64.b64encode(zlib.compress(joined.encode(), 1)).decode() if joined else ""


def _decompress(packed: str) -> list[str]:
    if not packed:
        return []
    return zlib.decompress(base64.b64decode(packed)).decode().split(_SEPARATOR)
