"""Types of sources, their content, and the changes of a sync."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

from content.detection import SizeLimits

__all__ = [
    "AllBut",
    "Change",
    "ChangeKind",
    "Content",
    "Details",
    "IndexedDocument",
    "Listing",
    "Read",
    "Reason",
    "RemoteSource",
    "Report",
    "SizeLimits",
    "Skip",
    "Source",
    "SyncOptions",
    "WatchableSource",
    "Watched",
    "WithoutHistory",
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
    INVALID = "invalid line"
    NOINDEX = "noindex"
    ROBOTS = "disallowed by robots.txt"
    MEDIA_TYPE = "unsupported media type"
    UNREACHABLE = "unreachable"
    NOT_VISITED = "over the limit of the crawl"
    GONE = "not found"
    DENIED = "access denied"
    ALIAS = "another address of a page"
    OUTSIDE = "redirect out of the scope"


class Reason(StrEnum):
    """Reason to publish or delete a document."""

    NEW = "new"
    CHANGED = "changed"
    DELETED = "deleted"
    RENAMED = "renamed"
    LOST = "lost"
    COLLECTIONS = "other collections"
    INTERRUPTED = "interrupted sync"
    EQUAL = "equal to the base"
    FULL = "full sync"


@dataclass(frozen=True, slots=True)
class Listing:
    """Current content of a source.

    Attributes:
        files: fingerprint by uri; equal fingerprints mean equal bytes.
        skipped_paths: reason by path, for paths that are not documents, decided without reading
            them. A path that ends in ``/`` is a folder that was left out as a whole.
        problems: what is wrong with some of the skipped paths, besides the reason.
        included: uris of files that a rule of the user names; their content is not checked.
        committed_at: time of ``commit`` in seconds since 1970.
        kept: uris whose documents stay although they are not listed.
        memory: JSON object that the next sync of this source gets, see ``RemoteSource``.
        with_details: a document has changed if its fingerprint has, even if its bytes are equal.
    """

    files: Mapping[str, str]
    skipped_paths: Mapping[str, Skip]
    commit: str | None = None
    permalink_template: str | None = None
    included: frozenset[str] = frozenset()
    committed_at: int | None = None
    kept: Container[str] = frozenset()
    memory: Mapping[str, Any] = field(default_factory=dict)
    with_details: bool = False
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def skipped(self) -> Counter[Skip]:
        """Number of skipped paths by reason; a folder counts once."""
        return Counter(self.skipped_paths.values())


@dataclass(frozen=True, slots=True)
class AllBut:
    """Container of everything that is not among ``uris``."""

    uris: frozenset[str]

    @classmethod
    def of(cls, uris: Iterable[str]) -> AllBut:
        """Build the container."""
        return cls(frozenset(uris))

    def __contains__(self, uri: object) -> bool:
        return uri not in self.uris


@dataclass(frozen=True, slots=True)
class SyncOptions:
    """Options of a sync of files, which are kept so that the sync can be repeated.

    Attributes:
        host: name of the machine of the files.
        collections: collections of every document.
        include: patterns of files to include that would be left out.
        worktree: of a repository, the current files and not the committed ones.
        branch: of a repository, the branch whose files are read; None: those at HEAD.
    """

    host: str = ""
    collections: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    worktree: bool = False
    branch: str | None = None

    @classmethod
    def from_json(cls, saved: Mapping[str, Any] | None) -> Self | None:
        """Inverse of ``asdict``, from JSON. Returns None if nothing was saved."""
        if saved is None:
            return None
        lists = {name: tuple(saved[name]) for name in ("collections", "include")}
        branch = saved.get("branch")  # earlier versions have not saved it
        return cls(saved["host"], **lists, worktree=saved["worktree"], branch=branch)


@dataclass(frozen=True, slots=True)
class Details:
    """Fields of a document's event beside its content, as in ``events.models.DocumentChange``."""

    kind: str | None = None
    media_type: str | None = None
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    permalink_template: str | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """Bytes of a file with their fingerprint, since a file may change after it was listed.

    The fingerprint is empty if the file may change again without a new fingerprint.
    """

    raw: bytes
    fingerprint: str
    details: Details | None = None


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


class WithoutHistory:
    """Part of a source that has neither commits nor renames."""

    def is_older(self, listing: Listing, commit: str, committed_at: int | None) -> bool:
        """Return False."""
        del listing, commit, committed_at
        return False

    def uncommitted(self, listing: Listing) -> int:
        """Return 0."""
        del listing
        return 0

    def renames(self, commit: str | None, listing: Listing) -> Mapping[str, str]:
        """Return no renames."""
        del commit, listing
        return {}


@runtime_checkable
class RemoteSource(Protocol):
    """Source whose listing takes long, and rests on what the last sync has learned."""

    def recall(self, memory: Mapping[str, Any], show: Callable[[int], None], *, full: bool) -> None:
        """Prepare a listing.

        Args:
            memory: ``memory`` of the last listing, of whichever version; empty for a new source.
            show: callback that shows the number of listed documents; any thread may call it.
            full: every document is read again.
        """
        ...

    def stop(self) -> None:
        """End a running listing soon, with an error. Any thread may call it."""
        ...


class Watched(Protocol):
    """Folders and files of a source at one moment whose changes may change its listing."""

    @property
    def folders(self) -> frozenset[str]:
        """Absolute paths of the folders to watch; each stands for itself, not for those below."""
        ...

    def is_noise(self, path: str) -> bool:
        """True if a change at an absolute path can't change the listing.

        Raises:
            UsageError: the ignore rules take too long to match.
        """
        ...


@runtime_checkable
class WatchableSource(Protocol):
    """Source in files whose changes the operating system reports."""

    @property
    def location(self) -> str:
        """Absolute path of what is synced."""
        ...

    @property
    def options(self) -> SyncOptions:
        """Options of ``open_source`` with which this source was opened."""
        ...

    def watched(self) -> Watched:
        """Find what to watch.

        Raises:
            UsageError: the source no longer exists, or can't be read.
        """
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
    details: Details | None = None


@dataclass(slots=True)
class Report:
    """Counts of one sync.

    When it has finished, ``found = unchanged + waiting + published + rejected + skipped``.
    ``published`` counts documents that were created, edited or renamed; ``deleted`` counts those
    whose file is gone or no longer text. ``waiting`` counts documents published by an earlier sync
    and not applied yet. ``rejected`` has the reason by uri for documents whose last change was
    rejected and which have not changed since. ``skipped_paths`` has the reason by path,
    and ``problems`` more about some of these paths.
    """

    found: int = 0
    unchanged: int = 0
    waiting: int = 0
    published: int = 0
    deleted: int = 0
    rejected: dict[str, str] = field(default_factory=dict)
    skipped_paths: dict[str, Skip] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def skipped(self) -> Counter[Skip]:
        """Count of ``skipped_paths`` by reason."""
        return Counter(self.skipped_paths.values())
