"""Folders of a source to watch, and the changes in them that can change its listing."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from sources.ignore_rules import GIT_RULES_FILE, RULES_FILE, IgnoreRules
from sources.types import Watched

__all__ = ["WatchedParts", "WatchedReferences", "WatchedTree", "alters_folders"]

_EDITORS_FILE = re.compile(
    r"(?:4913|.*~|.*\.sw[a-px]|.*___jb_(?:tmp|old)___|\.#.*|#.*#|\.~lock\..*|~\$.*)", re.DOTALL
)
"""Names of backups, locks and drafts of vim, Emacs, JetBrains, LibreOffice and Microsoft Office,
which a save writes beside the document."""
_RULES_FILES = frozenset({RULES_FILE, GIT_RULES_FILE})
_HEADS = ("refs/heads", "reftable")


class WatchedTree:
    """Folders of a tree, and the files in them that no rule leaves out.

    Args:
        root: absolute path of the tree.
        rules: rules for the entries of each folder to watch, by its path from the root.
        tracked: paths from the root of files to which no rule applies.
    """

    def __init__(
        self, root: str, rules: Mapping[str, IgnoreRules], tracked: Container[str] = frozenset()
    ) -> None:
        self._root = f"{root}/"
        self._rules = rules
        self._tracked = tracked
        self.folders = frozenset(f"{root}/{path}" if path else root for path in rules)

    def is_noise(self, path: str) -> bool:
        """True for what is left out by its name or place, and for what editors write beside a file.

        A file of rules is never noise: it counts for a listing even if its own rules leave it out.

        Raises:
            UsageError: the ignore rules take too long to match.
        """
        if path in self.folders:
            return False
        relative = path.removeprefix(self._root)
        folder, _, name = relative.rpartition("/")
        rules = self._rules.get(folder)
        if rules is None or relative == path:
            return True
        if relative in self._tracked or name in _RULES_FILES:
            return False
        if _EDITORS_FILE.fullmatch(name):
            return True
        skip = rules.skip_folder if _is_folder(path) else rules.skip_file
        return skip(relative) is not None


class WatchedReferences:
    """HEAD and branches of a repository; changes of its index and of its objects are noise.

    Args:
        git_dir: absolute path of the work tree's own directory of git.
        common_dir: absolute path of the directory that all work trees share.
    """

    def __init__(self, git_dir: str, common_dir: str) -> None:
        both = {git_dir, common_dir}
        heads = [f"{directory}/{name}" for directory in both for name in _HEADS]
        below = {folder for head in heads for folder, _, _ in os.walk(head)}
        self._files = {f"{git_dir}/HEAD", f"{common_dir}/packed-refs"}
        self._heads = tuple(f"{head}/" for head in heads)
        self.folders = frozenset(both | below)

    def is_noise(self, path: str) -> bool:
        """True for all but HEAD, a branch, and a folder of branches."""
        if path.endswith(".lock"):
            return True
        is_reference = path in self._files or path.startswith(self._heads)
        return not is_reference and path not in self.folders


class WatchedParts:
    """Union of several parts of one source."""

    def __init__(self, parts: Sequence[Watched]) -> None:
        self._parts = parts
        self.folders = frozenset[str]().union(*(part.folders for part in parts))

    def is_noise(self, path: str) -> bool:
        """True if the change is noise in every part; raises UsageError as the parts do."""
        return all(part.is_noise(path) for part in self._parts)


def alters_folders(watched: Watched, path: str) -> bool:
    """True if after a change at an absolute path other folders may have to be watched."""
    is_rules_file = path.rpartition("/")[2] in _RULES_FILES
    return is_rules_file or path in watched.folders or _is_folder(path)


def _is_folder(path: str) -> bool:
    """True for a folder; a symbolic link is not one, wherever it leads, as in a listing."""
    try:
        return stat.S_ISDIR(Path(path).lstat().st_mode)
    except OSError:
        return False
