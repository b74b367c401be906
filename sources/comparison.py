"""Comparison of a source with the index, as pure functions: what to publish and what to delete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from events.models import content_hash
from sources.state import DELETED, State, state_of
from sources.types import ChangeKind, IndexedDocument, Reason

__all__ = ["Basis", "Step", "expected_of", "hashes_of", "match_renames"]

_EMPTY = content_hash("")


@dataclass(frozen=True, slots=True)
class Step:
    """One uri to publish or to delete.

    ``reason`` is None if only reading will show whether the document has changed. ``fingerprint``
    is that of the listing, and empty for a delete.
    """

    change: ChangeKind
    uri: str
    reason: Reason | None
    fingerprint: str = ""
    old_uri: str | None = None

    def below(self, prefix: str) -> Step:
        """Return the same step with a prefix before its uris."""
        old_uri = None if self.old_uri is None else prefix + self.old_uri
        return replace(self, uri=prefix + self.uri, old_uri=old_uri)


@dataclass(frozen=True)
class Basis:
    """State with which a sync compares a source.

    Attributes:
        state: saved state; its pending changes are still in the log.
        expected: content of the index by uri (as `index_state_of`), once the pending changes are
            applied.
        collections: collections of every document of this sync.
        lost_uris: uris of changes that left the log before a worker applied them.
        full: publish everything.
        base: of an overlay, the hash of each text of its base by uri. The overlay then has only
            documents with another text, and an empty one for each that the source lacks. It is None
            for any other source.
    """

    state: State
    expected: Mapping[str, str]
    collections: tuple[str, ...] = ()
    lost_uris: Collection[str] = frozenset()
    full: bool = False
    base: Mapping[str, str] | None = None

    @classmethod
    def of(
        cls,
        state: State,
        indexed: Mapping[str, IndexedDocument],
        collections: tuple[str, ...] = (),
        lost_uris: Collection[str] = frozenset(),
        *,
        full: bool = False,
        base: Mapping[str, str] | None = None,
    ) -> Basis:
        """Build the basis from the current content of the index."""
        expected = expected_of(state, indexed)
        return cls(state, expected, collections, lost_uris, full, base)

    def target(self, mark: str) -> str:
        """Index state to reach for a document whose text has this hash."""
        return state_of(mark, self.collections) if self.collections else mark

    @property
    def base_uris(self) -> Collection[str]:
        """Uris of the base of an overlay; empty for any other source."""
        return () if self.base is None else self.base.keys()

    def is_in_base(self, uri: str, mark: str) -> bool:
        """True if the base of this overlay has the same text."""
        return self.base is not None and self.base.get(uri) == mark

    def target_of_delete(self, uri: str) -> str:
        """Index state to reach for a document that the source does not have."""
        return self.target(_EMPTY) if uri in self.base_uris else DELETED

    def refusal(self, uri: str, target: str) -> str | None:
        """Reason why the same change was rejected before; None if it was not or is retried."""
        before, rejection = self.state.rejected.get(uri, (None, ""))
        if self.full or before != target or uri in self.state.doubtful:
            return None
        return rejection

    def reason_to_publish(self, uri: str, mark: str) -> Reason | None:
        """Reason to publish a document; None if it is up to date."""
        if self.full:
            return Reason.FULL
        if uri in self.state.doubtful:
            return Reason.INTERRUPTED
        expected = self.expected.get(uri)
        if expected == self.target(mark):
            return None
        if uri in self.lost_uris or self._was_read(uri, mark, expected):
            return Reason.LOST
        if expected is None:
            return Reason.CHANGED if uri in self.base_uris else Reason.NEW
        return Reason.COLLECTIONS if _hash_of(expected) == mark else Reason.CHANGED

    def reason_to_delete(self, uri: str) -> Reason | None:
        """Reason to delete a uri that the source does not have; None if it need not be deleted."""
        if self.expected.get(uri, DELETED) != self.target_of_delete(uri):
            return Reason.DELETED
        return Reason.INTERRUPTED if uri in self.state.doubtful else None

    def reason_to_drop(self, uri: str) -> Reason | None:
        """Reason to remove a document from an overlay whose base has the same text.

        The document of the base is then seen again. Returns None if the overlay has none.
        """
        if uri in self.expected:
            return Reason.EQUAL
        return Reason.INTERRUPTED if uri in self.state.doubtful else None

    def _was_read(self, uri: str, mark: str, expected: str | None) -> bool:
        """True if an earlier sync read this text, but the index does not hold it."""
        entry = self.state.files.get(uri)
        if entry is None or entry[1] != mark:
            return False
        return expected is None or _hash_of(expected) != mark


def expected_of(state: State, indexed: Mapping[str, IndexedDocument]) -> dict[str, str]:
    """Content of the index by uri, as ``state_of``, once the pending changes are applied."""
    expected = {
        uri: state_of(text, in_collections) if in_collections else text
        for uri, (text, in_collections) in indexed.items()
    }
    for uri, (_, target) in state.pending.items():
        if target == DELETED:
            expected.pop(uri, None)
        else:
            expected[uri] = target
    return expected


def hashes_of(expected: Mapping[str, str]) -> dict[str, str]:
    """Hash of each text by uri, without the collections."""
    return {uri: _hash_of(target) for uri, target in expected.items()}


def _hash_of(target: str) -> str:
    return target.partition("\n")[0]


def match_renames(
    removed: Mapping[str, str], added: Mapping[str, str | None], similar: Mapping[str, str]
) -> dict[str, str]:
    """Old uri by new uri: equal texts first (in order of uri), then similar texts.

    Args:
        removed: content of the index by uri, for uris that are no longer in the source.
        added: hash of the text by new uri; None if it is not known.
        similar: old uri by new uri, for files that were moved and edited.
    """
    by_hash: defaultdict[str, list[str]] = defaultdict(list)
    for uri, target in sorted(removed.items(), reverse=True):
        by_hash[_hash_of(target)].append(uri)
    renames = {
        uri: by_hash[mark].pop()
        for uri, mark in sorted(added.items())
        if mark and by_hash.get(mark)
    }
    moved = set(renames.values())
    for uri, old_uri in similar.items():
        if uri in added and uri not in renames and old_uri in removed and old_uri not in moved:
            renames[uri] = old_uri
            moved.add(old_uri)
    return renames
