"""Two states of a source → what has to be done. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from sources.state import UNSURE, State
from sources.types import ChangeKind

__all__ = ["Step", "steps"]


@dataclass(frozen=True, slots=True)
class Step:
    """One uri to publish or to delete. ``fingerprint``: as listed; empty for a delete."""

    change: ChangeKind
    uri: str
    fingerprint: str = ""
    old_uri: str | None = None


def steps(before: State | None, files: Mapping[str, str], similar: Mapping[str, str]) -> list[Step]:
    """What leads from one state to the other, by uri: renames, then upserts, then deletes.

    Args:
        before: as published last; None: nothing is.
        files: fingerprint by uri, now.
        similar: old uri by new uri, for files that were moved and edited.
    """
    documents = before.documents if before else {}
    skipped = before.skipped if before else {}
    changed = {
        uri: fingerprint
        for uri, fingerprint in sorted(files.items())
        if documents.get(uri) != fingerprint and skipped.get(uri, ("",))[0] != fingerprint
    }
    gone = {uri: mark for uri, mark in sorted(documents.items()) if uri not in files}
    added = {uri: mark for uri, mark in changed.items() if documents.get(uri, UNSURE) == UNSURE}
    renames = _renames(gone, added, similar)
    moved = set(renames.values())
    return [
        *(Step("rename", uri, files[uri], old_uri) for uri, old_uri in sorted(renames.items())),
        *(
            Step("upsert", uri, fingerprint)
            for uri, fingerprint in changed.items()
            if uri not in renames
        ),
        *(Step("delete", uri) for uri in gone if uri not in moved),
    ]


def _renames(
    gone: Mapping[str, str], added: Mapping[str, str], similar: Mapping[str, str]
) -> dict[str, str]:
    """Old uri by new uri: equal bytes first (in order of uri), then similar ones."""
    by_fingerprint: defaultdict[str, list[str]] = defaultdict(list)
    for uri, fingerprint in sorted(gone.items(), reverse=True):
        by_fingerprint[fingerprint.removeprefix(UNSURE)].append(uri)
    renames = {
        uri: by_fingerprint[fingerprint].pop()
        for uri, fingerprint in added.items()
        if by_fingerprint.get(fingerprint)
    }
    moved = set(renames.values())
    for uri, old_uri in similar.items():
        if uri in added and uri not in renames and old_uri in gone and old_uri not in moved:
            renames[uri] = old_uri
            moved.add(old_uri)
    return renames
