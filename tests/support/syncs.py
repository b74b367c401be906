"""Syncs of a source with an index that applies every change at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from events.models import content_hash
from sources import (
    Basis,
    Change,
    IndexedDocument,
    Listing,
    RemoteSource,
    Report,
    Source,
    State,
    Sync,
    open_source,
)
from sources.types import Content, Read, SizeLimits, WithoutHistory

__all__ = ["LIMITS", "LIMIT_BYTES", "MemorySource", "Synced", "applied", "begin", "sync"]

LIMIT_BYTES = 10_000
LIMITS = SizeLimits(LIMIT_BYTES, LIMIT_BYTES)


@dataclass(frozen=True)
class Synced:
    """State after a sync, and the documents in the index."""

    state: State = field(default_factory=State)
    indexed: Mapping[str, IndexedDocument] = field(default_factory=dict)
    report: Report = field(default_factory=Report)
    total: int = 0


NOTHING = Synced()


@dataclass(frozen=True)
class MemorySource(WithoutHistory):
    """Files by uri, with their text as fingerprint; ``similar``: old uri by new uri."""

    files: Mapping[str, str]
    similar: Mapping[str, str] = field(default_factory=dict)
    kind: str = "directory"
    key: str = "memory"
    name: str = "memory"
    location: str = "/memory"

    def list(self, sizes: SizeLimits) -> Listing:
        """All files."""
        del sizes
        return Listing(dict(self.files), {})

    def renames(self, commit: str | None, listing: Listing) -> Mapping[str, str]:
        """Renames as given."""
        del commit, listing
        return self.similar

    @contextmanager
    def reader(self, sizes: SizeLimits) -> Iterator[Read]:
        """Reader of the files."""
        del sizes
        yield lambda uri, _: Content(self.files[uri].encode(), self.files[uri])


def begin(
    source: Source,
    before: Synced = NOTHING,
    *,
    collections: tuple[str, ...] = (),
    full: bool = False,
    read_all: bool = False,
    max_bytes: int = LIMIT_BYTES,
    lost: frozenset[str] = frozenset(),
) -> Sync:
    """Begin a sync; its state goes through JSON, as in production."""
    kept = State.from_json(before.state.to_json())
    basis = Basis.of(kept, before.indexed, collections, lost, full=full)
    sizes = SizeLimits(max_bytes, max_bytes)
    return Sync(source, source.list(sizes), basis, sizes, read_all=read_all)


def sync(
    path: Path | Source,
    before: Synced = NOTHING,
    *,
    collections: tuple[str, ...] = (),
    full: bool = False,
) -> tuple[list[Change], Synced]:
    """Run a whole sync, with its counts checked."""
    source = open_source(path) if isinstance(path, Path) else path
    if isinstance(source, RemoteSource):
        source.recall(before.state.memory, lambda _: None, full=full)
    run = begin(source, before, collections=collections, full=full)
    changes = list(run)
    report = run.report
    assert report.found == report.unchanged + report.published + report.skipped.total()
    assert len(changes) == report.published + report.deleted
    indexed = applied(before.indexed, changes, collections)
    return changes, Synced(run.state(), indexed, report, run.total)


def applied(
    indexed: Mapping[str, IndexedDocument],
    changes: Iterable[Change],
    collections: tuple[str, ...] = (),
) -> dict[str, IndexedDocument]:
    """Content of the index after the changes."""
    after = dict(indexed)
    for change in changes:
        if change.old_uri is not None:
            after.pop(change.old_uri)
        if change.content is None:
            after.pop(change.uri, None)
        else:
            after[change.uri] = IndexedDocument(content_hash(change.content), collections)
    return after
