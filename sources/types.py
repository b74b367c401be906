"""Types of sources, their content, and the changes of a sync."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol

from content.detection import SizeLimits

__all__ = [
    "Change",
    "ChangeKind",
    "Content",
    "IndexedDocument",
    "Listing",
    "Read",
    "Reason",
    "Report",
    "SizeLimits",
    "Skip",
    "Source",
]

ChangeKind = Literal["upsert", "delete", "rename"]


class Skip(StrEnum):
    """Reason why a file or folder is not a document."""

    BINARY = "binary"
    ENCODING = "unknown encoding"
    OVERSIZED = "oversized"
    EMPTY = "empty"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"
    NAME = "unusable name"
    SPECIAL = "special file"
    UNREADABLE = "unreadable"
    IGNORED = "ignored"
    SECRET = "secret"  # noqa: S105 - a reason, not a password
    DEPENDENCY = "dependency"
    LOCK_FILE = "lock file"
    GENERATED = "generated"
    MINIFIED = "minified"
    LFS_POINTER = "lfs pointer"
    HOME = "headrace home"


class Reason(StrEnum):
    """Reason to publish or delete a document."""

    NEW = "new"
    CHANGED = "changed"
    DELETED = "deleted"
    RENAMED = "renamed"
    LOST = "lost"
    COLLECTIONS = "other collections"
    INTERRUPTED = "interrupted sync"
    FULL = "full sync"


@dataclass(frozen=True, slots=True)
class Listing:
    """Current content of a source.

    Attributes:
        files: fingerprint by uri; equal fingerprints mean equal bytes.
        skipped_paths: reason by path, for paths that are not documents, decided without reading
            them. A path that ends in ``/`` is a folder that was left out as a whole.
        included: uris of files that a rule of the user names; their content is not checked.
        committed_at: time of ``commit`` in seconds since 1970.
    """

    files: Mapping[str, str]
    skipped_paths: Mapping[str, Skip]
    commit: str | None = None
    permalink_template: str | None = None
    included: frozenset[str] = frozenset()
    committed_at: int | None = None

    @property
    def skipped(self) -> Counter[Skip]:
        """Number of skipped paths by reason; a folder counts once."""
        return Counter(self.skipped_paths.values())


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes of a file with their fingerprint, since a file may change after it was listed.

    The fingerprint is empty if the file may change again without a new fingerprint.
    """

    raw: bytes
    fingerprint: str


class IndexedDocument(NamedTuple):
    """State of a document in the index: SHA-256 of its text (hex), and its collections."""

    content_hash: str
    collections: tuple[str, ...] = ()


Read = Callable[[str, str], Content]
"""Reader of a uri that was listed with a fingerprint; raises ``OSError`` if it can't be read."""


class Source(Protocol):
    """Origin of documents. Calls block; none runs code of the source."""

    @property
    def kind(self) -> str:
        """Kind of source: ``git`` or ``directory``."""
        ...

    @property
    def key(self) -> str:
        """Identity, equal for two checkouts of one repository; git may need a while to find it."""
        ...

    @property
    def name(self) -> str:
        """Default name for people, unique to the key."""
        ...

    @property
    def location(self) -> str:
        """Absolute path of what is synced."""
        ...

    def list(self, sizes: SizeLimits) -> Listing:
        """List everything in the source; files over their limit count as skipped.

        Raises:
            UsageError: the source no longer exists, or can't be read.
        """
        ...

    def is_older(self, listing: Listing, commit: str, committed_at: int | None) -> bool:
        """True if the listing is of an earlier commit than ``commit``, which was synced before."""
        ...

    def uncommitted(self, listing: Listing) -> int:
        """Count files that differ from the listed commit; 0 if there is no commit."""
        ...

    def renames(self, commit: str | None, listing: Listing) -> Mapping[str, str]:
        """Old uri by new uri of files renamed since ``commit``; empty if that is unknown."""
        ...

    def reader(self, sizes: SizeLimits) -> AbstractContextManager[Read]:
        """Reader of single contents, which reads at most one byte more than the limit of each."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one document.

    ``target`` is the state of the uri in the index once the change is applied, as
    ``state.state_of`` returns it.
    """

    change: ChangeKind
    uri: str
    target: str
    reason: Reason
    old_uri: str | None = None
    content: str | bytes | None = None
    commit: str | None = None
    permalink_template: str | None = None


@dataclass(slots=True)
class Report:
    """Counts of one sync.

    When it has finished, ``found = unchanged + waiting + published + rejected + skipped``.
    ``published`` counts documents that were created, edited or renamed; ``deleted`` counts those
    whose file is gone or no longer text. ``waiting`` counts documents published by an earlier sync
    and not applied yet. ``rejected`` has the reason by uri for documents whose last change was
    rejected and which have not changed since. ``skipped_paths`` has the reason by path.
    """

    found: int = 0
    unchanged: int = 0
    waiting: int = 0
    published: int = 0
    deleted: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    skipped_paths: dict[str, Skip] = field(default_factory=dict)

    @property
    def skipped(self) -> Counter[Skip]:
        """Count of ``skipped_paths`` by reason."""
        return Counter(self.skipped_paths.values())
