"""What is remembered of a source from one sync to the next: a cache, and what is on its way."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sources.types import Skip

__all__ = ["GONE", "Known", "Pending", "State", "mark_of", "skip_of", "want"]

GONE = ""
"""What is wanted of a document that is deleted."""

_VERSION = 2
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

    def trusting(self, rules: str) -> Self:
        """Without what was read, where other rules decided which files are documents."""
        if self.rules == rules:
            return self
        return replace(self, files={}, rules=rules)

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
            "doubtful": _packed(sorted(self.doubtful)),
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
            doubtful=frozenset(_unpacked(saved["doubtful"])),
            commit=saved["commit"],
            committed_at=saved["committed_at"],
            rules=saved["rules"],
        )


def _packed(value: object) -> str:
    """Empty for an empty one; Postgres would take seconds to parse the keys of a large object."""
    if not value:
        return ""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 1)).decode()


def _unpacked(packed: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(packed))) if packed else {}


def _pairs(packed: str) -> dict[str, tuple[str, str]]:
    found: dict[str, list[str]] = _unpacked(packed)
    return {uri: (first, second) for uri, (first, second) in found.items()}
