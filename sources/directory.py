"""A plain directory: every file that isn't ignored, by what the file system says of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from runtime.errors import UsageError
from sources.files import fingerprint_of, read_marked
from sources.ignoring import Choice, IgnoreRules
from sources.naming import to_shown, to_uri
from sources.types import Content, Listing, Read, Skip

__all__ = ["DirectorySource", "open_directory"]

_ALL = Choice()


def open_directory(path: Path, choice: Choice = _ALL) -> DirectorySource:
    """Any directory is one."""
    return DirectorySource(path, choice)


class DirectorySource:
    """Uris are paths relative to the directory. Symbolic links are never followed."""

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
        included: set[str] = set()
        for path, entry, rules in _walk(self._root, self._choice):
            found = entry if isinstance(entry, Skip) else self._look(entry, path, max_bytes)
            if isinstance(found, Skip):
                skipped[to_shown(path)] = found
                continue
            files[path] = found
            if rules.includes(path):
                included.add(path)
        return Listing(files, skipped, included=frozenset(included))

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

    def _look(self, entry: os.DirEntry[str], path: str, max_bytes: int) -> str | Skip:
        """Fingerprint of a file, or why it is none of ours."""
        try:
            found = entry.stat(follow_symlinks=False)
        except OSError:
            return Skip.UNREADABLE
        if stat.S_ISLNK(found.st_mode):
            return Skip.SYMLINK
        if not stat.S_ISREG(found.st_mode):
            return Skip.SPECIAL
        if to_uri(os.fsencode(path)) is None:
            return Skip.NAME
        return Skip.OVERSIZED if found.st_size > max_bytes else fingerprint_of(found)


def _walk(root: Path, choice: Choice) -> Iterator[tuple[str, os.DirEntry[str] | Skip, IgnoreRules]]:
    """Every file by its path, and what is left out: a path with the reason, a folder's as a whole.

    What a rule of the user ignores isn't found at all.
    """
    waiting = [(root, "", IgnoreRules.at(root, choice))]
    while waiting:
        directory, relative, above = waiting.pop()
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except OSError as error:
            if directory == root:
                raise UsageError(f"{root} can't be read: {error.strerror}") from error
            yield f"{relative}/", Skip.UNREADABLE, above
            continue
        names = {entry.name for entry in entries}
        marked = above.skip_marked(relative, names) if relative else None
        if marked is not None:
            yield f"{relative}/", marked, above
            continue
        rules = above.below(directory, relative, names)
        for entry in entries:
            path = f"{relative}/{entry.name}" if relative else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            reason = rules.skip_folder(path, names) if is_folder else rules.skip_file(path)
            if reason is Skip.IGNORED:
                continue
            if is_folder and reason is None:
                waiting.append((Path(entry.path), path, rules))
            else:
                yield (f"{path}/" if is_folder else path), reason or entry, rules
