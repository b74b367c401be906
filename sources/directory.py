"""A plain directory: every file that isn't ignored, by what the file system says of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from runtime.errors import UsageError
from sources.files import fingerprint_of, read_marked
from sources.ignoring import IgnoreRules
from sources.naming import to_uri
from sources.types import Content, Listing, Read, Skip

__all__ = ["DirectorySource", "open_directory"]


def open_directory(path: Path) -> DirectorySource:
    """Any directory is one."""
    return DirectorySource(path)


class DirectorySource:
    """Uris are paths relative to the directory. Symbolic links are never followed."""

    kind = "directory"

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    @property
    def name(self) -> str:
        """Absolute path."""
        return str(self._root)

    @property
    def key(self) -> str:
        """By the absolute path."""
        return f"directory:{self._root}"

    @property
    def location(self) -> str:
        """Absolute path."""
        return str(self._root)

    def list(self, max_bytes: int) -> Listing:
        """Every file up to ``max_bytes``, none of which is read.

        Raises:
            UsageError: the directory has gone, or can't be read.
        """
        files: dict[str, str] = {}
        skipped: dict[str, Skip] = {}
        for entry, relative in _walk(self._root):
            found = self._look(entry, relative, max_bytes)
            if isinstance(found, Skip):
                skipped[relative.as_posix()] = found
            else:
                files[relative.as_posix()] = found
        return Listing(files, skipped)

    def is_older(self, listing: Listing, commit: str, committed_at: int | None) -> bool:
        """Never: a directory is as it is now."""
        del listing, commit, committed_at
        return False

    def uncommitted(self, listing: Listing) -> int:
        """None: nothing is committed."""
        del listing
        return 0

    def renames(self, commit: str | None, listing: Listing) -> Mapping[str, str]:
        """None: a directory doesn't remember what its files were like."""
        del commit, listing
        return {}

    @contextmanager
    def reader(self, max_bytes: int) -> Iterator[Read]:
        """Reads files by their uri."""

        def read(uri: str, _: str) -> Content:
            return read_marked(self._root / uri, max_bytes + 1)

        yield read

    def _look(
        self, entry: os.DirEntry[str] | None, relative: PurePosixPath, max_bytes: int
    ) -> str | Skip:
        """Fingerprint of a file, or why it is none of ours."""
        if entry is None:
            return Skip.UNREADABLE
        if entry.is_symlink():
            return Skip.SYMLINK
        if not entry.is_file(follow_symlinks=False):
            return Skip.SPECIAL
        if to_uri(os.fsencode(relative)) is None:
            return Skip.NAME
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            return Skip.UNREADABLE
        return Skip.OVERSIZED if found.st_size > max_bytes else fingerprint_of(found)


def _walk(root: Path) -> Iterator[tuple[os.DirEntry[str] | None, PurePosixPath]]:
    """Everything but directories that isn't ignored; None for a directory that can't be read."""
    waiting = [(root, PurePosixPath(), IgnoreRules())]
    while waiting:
        directory, relative, above = waiting.pop()
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError as error:
            if directory == root:
                raise UsageError(f"{root} can't be read: {error.strerror}") from error
            yield None, relative
            continue
        rules = above.below(directory, relative)
        for entry in entries:
            place = relative / entry.name
            is_directory = entry.is_dir(follow_symlinks=False)
            if rules.ignores(place, is_directory):
                continue
            if is_directory:
                waiting.append((Path(entry.path), place, rules))
            else:
                yield entry, place
