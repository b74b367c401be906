"""What a source is, what is found in it, and what is remembered of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal, Protocol

__all__ = ["Change", "ChangeKind", "Content", "Listing", "Read", "Report", "Skip", "Source"]

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


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source holds now.

    Attributes:
        files: fingerprint by uri; equal ones mean equal bytes.
        skipped_paths: what is known to be no document without reading it. A path that ends in
            ``/`` is a folder that was left out as a whole.
        included: uris of files that a rule of the user names: their content is not judged.
    """

    files: Mapping[str, str]
    skipped_paths: Mapping[str, Skip]
    commit: str | None = None
    permalink_template: str | None = None
    included: frozenset[str] = frozenset()

    @property
    def skipped(self) -> Counter[Skip]:
        """Number of skipped paths by reason; a folder counts once."""
        return Counter(self.skipped_paths.values())


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes of one file, with their fingerprint: a file may change after it was listed."""

    raw: bytes
    fingerprint: str


Read = Callable[[str, str], Content]
"""Content of a uri that was listed with a fingerprint; raises ``OSError`` where it can't be had."""


class Source(Protocol):
    """A place that documents come from. Calls block; none runs code of the source."""

    @property
    def kind(self) -> str:
        """``git`` or ``directory``."""
        ...

    @property
    def name(self) -> str:
        """Identity of the source: what its state is kept under."""
        ...

    def list(self, max_bytes: int) -> Listing:
        """Everything in the source; files over ``max_bytes`` count as skipped.

        Raises:
            UsageError: the source has gone, or can't be read.
        """
        ...

    def renames(self, commit: str | None, listing: Listing) -> Mapping[str, str]:
        """Old uri by new uri of similar files since ``commit``; empty where that isn't known."""
        ...

    def reader(self, max_bytes: int) -> AbstractContextManager[Read]:
        """Reads contents one by one, at most a byte over ``max_bytes`` of each."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """One document became something else, or went away. ``key`` makes the id of its event."""

    change: ChangeKind
    uri: str
    key: str
    old_uri: str | None = None
    content: str | None = None
    commit: str | None = None
    permalink_template: str | None = None


@dataclass(slots=True)
class Report:
    """Counts of one sync; when it is through, ``found = unchanged + published + skipped``.

    ``published`` counts documents that were created, edited or renamed; ``deleted`` counts those
    that were there before and are no longer (or are no longer text).
    """

    found: int = 0
    unchanged: int = 0
    published: int = 0
    deleted: int = 0
    skipped: Counter[Skip] = field(default_factory=Counter)
