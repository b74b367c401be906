"""Source that is a plain directory: every file that is not ignored."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import UsageError
from sources.files import fingerprint_of, read_marked, to_shown, to_uri
from sources.ignore_rules import GIT_RULES_FILE, RULES_FILE, Choice, IgnoreRules
from sources.types import (
    Content,
    Listing,
    Read,
    SizeLimits,
    Skip,
    SyncOptions,
    Watched,
    WithoutHistory,
)
from sources.watched import WatchedTree

__all__ = [
    "RIGHTS_REMEDY",
    "DirectorySource",
    "Folder",
    "directory_key",
    "open_directory",
    "walk",
]

RIGHTS_REMEDY = "let this user list and enter it (chmod u+rx)"

_ALL = Choice()


def open_directory(path: Path, choice: Choice = _ALL) -> DirectorySource:
    """Open a directory; every directory is accepted."""
    return DirectorySource(path, choice)


def directory_key(location: str) -> str:
    """Identity of the plain directory at an absolute path."""
    return f"directory:{location}"


class DirectorySource(WithoutHistory):
    """Source of a directory. Uris are relative paths; symbolic links are never followed."""

    kind = "directory"

    def __init__(self, root: Path, choice: Choice = _ALL) -> None:
        self._root = root.resolve()
        self._choice = choice

    @property
    def name(self) -> str:
        """Absolute path."""
        return str(self._root)

    @property
    def key(self) -> str:
        """Identity, made of the absolute path."""
        return directory_key(self.location)

    @property
    def location(self) -> str:
        """Absolute path."""
        return str(self._root)

    @property
    def options(self) -> SyncOptions:
        """Patterns of files to include."""
        return SyncOptions(include=self._choice.include)

    def list(self, sizes: SizeLimits) -> Listing:
        """List every file up to its limit without reading any.

        Raises:
            UsageError: the directory no longer exists, or can't be read.
        """
        files: dict[str, str] = {}
        skipped: dict[str, Skip] = {}
        included: set[str] = set()
        for folder in walk(self._root, IgnoreRules.at(self._root, self._choice)):
            for path, entry in folder.entries:
                fingerprint = entry if isinstance(entry, Skip) else self._read(entry, path, sizes)
                if isinstance(fingerprint, Skip):
                    skipped[to_shown(path)] = fingerprint
                    continue
                files[path] = fingerprint
                if folder.rules.includes(path):
                    included.add(path)
        return Listing(files, skipped, included=frozenset(included))

    def watched(self) -> Watched:
        """Watch every folder that is not left out.

        Raises:
            UsageError: the directory no longer exists, or can't be read.
        """
        folders = walk(self._root, IgnoreRules.at(self._root, self._choice))
        return WatchedTree(
            str(self._root), {folder.path: folder.rules for folder in folders if folder.is_entered}
        )

    @contextmanager
    def reader(self, sizes: SizeLimits) -> Iterator[Read]:
        """Reader of files by their uri."""

        def read(uri: str, _: str) -> Content:
            return read_marked(self._root / uri, sizes.of(uri) + 1)

        yield read

    def _read(self, entry: os.DirEntry[str], path: str, sizes: SizeLimits) -> str | Skip:
        """Fingerprint of a file, or the reason to skip it."""
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return Skip.UNREADABLE
        if stat.S_ISLNK(status.st_mode):
            return Skip.SYMLINK
        if not stat.S_ISREG(status.st_mode):
            return Skip.SPECIAL
        if to_uri(os.fsencode(path)) is None:
            return Skip.NAME
        is_oversized = status.st_size > sizes.of(path)
        return Skip.OVERSIZED if is_oversized else fingerprint_of(status)


@dataclass(frozen=True, slots=True)
class Folder:
    """Folder of a tree, with its entries that are not ignored.

    Attributes:
        path: path from the root; ``""`` for the root.
        rules: rules for the entries.
        entries: path of each file with its entry, or of each file and folder that is left out with
            the reason. A folder's path ends in a slash.
        is_entered: False if the folder itself is left out, as its only entry.
    """

    path: str
    rules: IgnoreRules
    entries: Sequence[tuple[str, os.DirEntry[str] | Skip]]
    is_entered: bool = True


def walk(
    root: Path,
    rules: IgnoreRules,
    start: str = "",
    rules_files: frozenset[str] = frozenset({RULES_FILE, GIT_RULES_FILE}),
) -> Iterator[Folder]:
    """Yield the folders of a tree from ``start`` on; ignored ones are neither yielded nor entered.

    Args:
        root: root of the tree.
        rules: rules at the root, from which those of folders follow.
        start: path of the first folder from the root; its own name never leaves it out.
        rules_files: names of the files whose rules apply to their folders.

    Raises:
        UsageError: the first folder can't be read.
    """
    pending = [(root / start, start, rules)]
    while pending:
        directory, relative, parent_rules = pending.pop()
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError as error:
            if relative == start:
                remedy = RIGHTS_REMEDY if isinstance(error, PermissionError) else ""
                raise UsageError(f"{directory} can't be read: {error.strerror}", remedy) from error
            yield Folder(relative, parent_rules, [(f"{relative}/", Skip.UNREADABLE)], False)
            continue
        names = {entry.name for entry in entries}
        marked = parent_rules.skip_marked(relative, names) if relative != start else None
        if marked is not None:
            yield Folder(relative, parent_rules, [(f"{relative}/", marked)], False)
            continue
        rules = parent_rules.below(directory, relative, names & rules_files)
        listed: list[tuple[str, os.DirEntry[str] | Skip]] = []
        for entry in entries:
            path = f"{relative}/{entry.name}" if relative else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            reason = rules.skip_folder(path, names) if is_folder else rules.skip_file(path)
            if reason is Skip.IGNORED:
                continue
            if is_folder and reason is None:
                pending.append((Path(entry.path), path, rules))
            else:
                listed.append((f"{path}/" if is_folder else path, reason or entry))
        yield Folder(relative, rules, listed)
