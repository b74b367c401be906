"""Source that is the work tree of a git repository: tracked files with edits, and new files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Self

from sources.directory import walk
from sources.files import fingerprint_of, read_marked, to_shown, to_uri
from sources.git import GitSource
from sources.git_index import WorkTree, present_files, tracked_files
from sources.ignore_rules import GIT_RULES_FILE, RULES_FILE, TrackedPaths, read_rule_lines
from sources.types import Content, Listing, Read, SizeLimits, Skip, SyncOptions, Watched
from sources.watched import WatchedParts, WatchedTree

__all__ = ["WorkTreeSource"]

_SUBMODULE_MODE = b"160000"


class WorkTreeSource(GitSource):
    """The source of the repository at HEAD, with uncommitted changes.

    Untracked files are included unless git ignores them. Documents have no permanent links.
    """

    @classmethod
    def of(cls, source: GitSource) -> Self:
        """Build the source of a repository's work tree."""
        return cls(source._root, source._prefix, source._choice, commit=source._commit)

    @property
    def options(self) -> SyncOptions:
        """Patterns of files to include, and the choice of the work tree."""
        return replace(super().options, worktree=True)

    def list(self, sizes: SizeLimits) -> Listing:
        """List the files of the work tree without reading any.

        Raises:
            UsageError: there is no commit yet, or the repository no longer exists.
        """
        commit, at = self._head()
        with self._git_errors():
            untracked, tracked = present_files(self._root, *self._paths())
        modes = {file.path: file.mode for file in tracked} | dict.fromkeys(untracked, b"")
        files: dict[str, str] = {}
        skipped: dict[str, Skip] = {}
        tree, rules = WorkTree(self._root), self._rules(commit)
        uris = [uri for path in modes if (uri := to_uri(path)) is not None]
        paths = TrackedPaths(rules, uris, self._prefix)
        for path, mode in sorted(modes.items()):
            shown, fingerprint = _inspect(tree, path, mode, paths, sizes)
            if isinstance(fingerprint, Skip):
                skipped[shown] = fingerprint
            elif fingerprint is not None:
                files[shown] = fingerprint
        included = frozenset(filter(rules.includes, files))
        return Listing(files, skipped, commit, included=included, committed_at=at)

    def watched(self) -> Watched:
        """Watch HEAD, the branches, the folders of tracked files, and all that are not ignored.

        Raises:
            UsageError: the repository no longer exists, or can't be read.
        """
        with self._git_errors():
            files = tracked_files(self._root, *self._paths())
            uris = [uri for file in files if (uri := to_uri(file.path)) is not None]
        root_rules = self._rules("")
        paths = TrackedPaths(root_rules, uris, self._prefix)
        tracked = frozenset(uri for uri in uris if paths.skip(uri) is None)
        start = self._prefix.rstrip("/")
        folders = walk(self._root, root_rules, start, frozenset({GIT_RULES_FILE}))
        rules = {folder.path: folder.rules for folder in folders if folder.is_entered}
        for folder in {uri.rpartition("/")[0] for uri in tracked}:
            rules.setdefault(folder, root_rules)
        return WatchedParts([WatchedTree(str(self._root), rules, tracked), super().watched()])

    def uncommitted(self, listing: Listing) -> int:
        """Return 0: uncommitted files are included."""
        del listing
        return 0

    def renames(self, commit: str | None, listing: Listing) -> Mapping[str, str]:
        """Return no renames: git detects them only between commits."""
        del commit, listing
        return {}

    @contextmanager
    def reader(self, sizes: SizeLimits) -> Iterator[Read]:
        """Reader of files of the work tree by their uri."""
        tree = WorkTree(self._root)

        def read(uri: str, _: str) -> Content:
            tree.stat(os.fsencode(uri))
            return read_marked(self._root / uri, sizes.of(uri) + 1)

        yield read

    def _rule_lines(self, commit: str) -> Sequence[str]:
        """Lines of the rules file in the work tree."""
        del commit
        return read_rule_lines(self._root / RULES_FILE)


def _inspect(
    tree: WorkTree, path: bytes, mode: bytes, paths: TrackedPaths, sizes: SizeLimits
) -> tuple[str, str | Skip | None]:
    """Path of a file, or of a skipped folder around it; with its fingerprint or reason to skip.

    The second item is None if the file was deleted.
    """
    uri = to_uri(path)
    if uri is None:
        return to_shown(path), Skip.NAME
    try:
        return paths.skip(uri) or (uri, _fingerprint(tree.stat(path), mode, sizes.of(uri)))
    except OSError:
        return uri, None


def _fingerprint(status: os.stat_result, mode: bytes, max_bytes: int) -> str | Skip:
    if mode == _SUBMODULE_MODE:
        return Skip.SUBMODULE
    if stat.S_ISLNK(status.st_mode):
        return Skip.SYMLINK
    if not stat.S_ISREG(status.st_mode):
        return Skip.SPECIAL
    return Skip.OVERSIZED if status.st_size > max_bytes else fingerprint_of(status)
