"""What a source is, what is found in it, and what a sync does with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol

__all__ = [
    "Change",
    "ChangeKind",
    "Content",
    "Held",
    "Listing",
    "Read",
    "Report",
    "Skip",
    "Source",
    "Why",
]

ChangeKind = Literal["upsert", "delete", "rename"]


class Skip(StrEnum):
    """Why something that was found is not a document."""

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


class Why(StrEnum):
    """Why a document is published or deleted."""

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
    """What a source holds now.

    Attributes:
        files: fingerprint by uri; equal ones mean equal bytes.
        skipped_paths: what is known to be no document without reading it. A path that ends in
            ``/`` is a folder that was left out as a whole.
        included: uris of files that a rule of the user names: their content is not judged.
        committed_at: seconds since 1970 of ``commit``.
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
    """Bytes of one file, with their fingerprint: a file may change after it was listed.

    An empty fingerprint: the file may change again without a new fingerprint.
    """

    raw: bytes
    fingerprint: str


class Held(NamedTuple):
    """What the index holds of a document: SHA-256 of its text (hex), and its collections."""

    content_hash: str
    collections: tuple[str, ...] = ()


Read = Callable[[str, str], Content]
"""Content of a uri that was listed with a fingerprint; raises ``OSError`` where it can't be had."""


class Source(Protocol):
    """A place that documents come from. Calls block; none runs code of the source."""

    @property
    def kind(self) -> str:
        """``git`` or ``directory``."""
        ...

    @property
    def key(self) -> str:
        """Identity: equal for two checkouts of one repository. It takes git some time to find."""
        ...

    @property
    def name(self) -> str:
        """What people call it, unless they choose another name; no other key has this name."""
        ...

    @property
    def location(self) -> str:
        """Absolute path of what is synced."""
        ...

    def list(self, max_bytes: int) -> Listing:
        """Everything in the source; files over ``max_bytes`` count as skipped.

        Raises:
            UsageError: the source has gone, or can't be read.
        """
        ...

    def is_older(self, listing: Listing, commit: str, committed_at: int | None) -> bool:
        """Whether the listing is of an earlier commit than one that was synced before."""
        ...

    def uncommitted(self, listing: Listing) -> int:
        """How many files differ from the commit that was listed; 0 where there is none."""
        ...

    def renames(self, commit: str | None, listing: Listing) -> Mapping[str, str]:
        """Old uri by new uri of similar files since ``commit``; empty where that isn't known."""
        ...

    def reader(self, max_bytes: int) -> AbstractContextManager[Read]:
        """Reads contents one by one, at most a byte over ``max_bytes`` of each."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """One document became something else, or went away.

    ``want``: what the index holds of the uri once the change is applied, as ``state.want`` has it.
    """

    change: ChangeKind
    uri: str
    want: str
    why: Why
    old_uri: str | None = None
    content: str | None = None
    commit: str | None = None
    permalink_template: str | None = None


@dataclass(slots=True)
class Report:
    """Counts of one sync.

    When it is through, ``found = unchanged + waiting + published + rejected + skipped``.
    ``published`` counts documents that were created, edited or renamed; ``deleted`` counts those
    that were there before and are no longer (or are no longer text). ``waiting``: published by an
    earlier sync, and not applied yet. ``rejected``: reason by uri of those whose last change was
    refused, and which have not changed since. ``skipped_paths``: reason by path.
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
