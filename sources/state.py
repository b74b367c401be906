"""What is remembered of a source from one sync to the next: a cache, and what is on its way."""

from __future__ import annotations

import base64
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Self

from sources.types import Skip

__all__ = ["GONE", "Known", "Pending", "State", "mark_of", "pending_of", "skip_of", "want"]

GONE = ""
"""What is wanted of a document that is deleted."""

_VERSION = 3
_SKIPPED = "!"

Known = tuple[str, str]
"""Fingerprint of a file, and what was found by reading it: SHA-256 of its text, or `mark_of`."""

Pending = tuple[str, str]
"""Token of a published change, and what it makes of its document."""


def want(content_hash: str, collections: Iterable[str] = ()) -> str:
    """State of a document in the index, as one text to compare."""
    return "\n".join([content_hash, *sorted(set(collections))])


def mark_of(reason: Skip) -> str:
    """What is kept of a file that is no document."""
    return f"{_SKIPPED}{reason.value}"


def skip_of(mark: str) -> Skip | None:
    """Why a file is no document; None: it is one."""
    return Skip(mark[len(_SKIPPED) :]) if mark.startswith(_SKIPPED) else None


def pending_of(saved: Mapping[str, Any]) -> dict[str, Pending]:
    """The pending changes of a state as it was saved, by uri."""
    return _pairs(saved["pending"]) if saved.get("version") == _VERSION else {}


@dataclass(slots=True)
class State:
    """A source as its last sync left it.

    Attributes:
        files: what was read, by uri. It saves reading; the index says what is indexed.
        pending: changes without a known outcome, by uri.
        rejected: what was wanted of a document when its change was refused, and why, by uri.
        doubtful: uris of which a sync that never ended may have published changes.
        commit: that was synced last.
        committed_at: its time in seconds since 1970.
        rules: digest of what decided which files are documents.
    """

    files: dict[str, Known] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    rejected: dict[str, tuple[str, str]] = field(default_factory=dict)
    doubtful: frozenset[str] = frozenset()
    commit: str | None = None
    committed_at: int | None = None
    rules: str = ""

    def resolve(
        self, applied: Collection[str], rejected: Mapping[str, str], present: Collection[str]
    ) -> frozenset[str]:
        """Drop the pending changes that are done with; the uris of those that are lost.

        Args:
            applied: tokens of changes that a worker has applied, or found to be superseded.
            rejected: reason by token of changes that were refused.
            present: tokens of changes that wait in the log.
        """
        uris_of = Counter(token for token, _ in self.pending.values())
        lost = set[str]()
        for uri, (token, wanted) in list(self.pending.items()):
            if token in rejected:
                # a rename that is refused leaves its old uri to be deleted by itself
                if wanted != GONE or uris_of[token] == 1:
                    self.rejected[uri] = wanted, rejected[token]
            elif token not in applied:
                if token in present:
                    continue
                lost.add(uri)
            del self.pending[uri]
        return frozenset(lost)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object: the large parts are compressed."""
        return {
            "version": _VERSION,
            "files": _packed(self.files),
            "pending": _packed(self.pending),
            "rejected": _packed(self.rejected),
            "doubtful": _compressed(sorted(self.doubtful)),
            "commit": self.commit,
            "committed_at": self.committed_at,
            "rules": self.rules,
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None) -> Self:
        """Inverse of ``to_json``; an empty one for nothing, or a state of another version."""
        if saved is None or saved.get("version") != _VERSION:
            return cls()
        return cls(
            files=_pairs(saved["files"]),
            pending=_pairs(saved["pending"]),
            rejected=_pairs(saved["rejected"]),
            doubtful=frozenset(_texts(saved["doubtful"])),
            commit=saved["commit"],
            committed_at=saved["committed_at"],
            rules=saved["rules"],
        )


_BETWEEN = "\0"
"""No uri, fingerprint or reason has it."""


def _packed(pairs: Mapping[str, tuple[str, str]]) -> str:
    """Texts side by side, compressed: large objects cost Postgres and JSON seconds to parse."""
    first, second = (map(itemgetter(i), pairs.values()) for i in range(2))
    return _compressed([*pairs, *first, *second])


def _pairs(packed: str) -> dict[str, tuple[str, str]]:
    texts = _texts(packed)
    count = len(texts) // 3
    pairs = zip(texts[count : 2 * count], texts[2 * count :], strict=True)
    return dict(zip(texts[:count], pairs, strict=True))


def _compressed(texts: Iterable[str]) -> str:
    joined = _BETWEEN.join(texts)
    return base64.b64encode(zlib.compress(joined.encode(), 1)).decode() if joined else ""


def _texts(packed: str) -> list[str]:
    if not packed:
        return []
    return zlib.decompress(base64.b64decode(packed)).decode().split(_BETWEEN)
