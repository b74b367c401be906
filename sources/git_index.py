"""Index and work tree of a repository, and their differences from a commit.

git's own comparison may run a filter of the repository. Therefore git only lists its index and the
untracked files here, and the files are compared in this process.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sources.files import read_regular, to_uri
from sources.git_process import run_git
from sources.ignore_rules import IgnoreRules, TrackedPaths
from sources.types import Listing

__all__ = [
    "TrackedFile",
    "WorkTree",
    "count_uncommitted",
    "present_files",
    "tracked_files",
]

_ENTRY = re.compile(
    rb"(?P<mode>\d{6}) (?P<blob>[0-9a-f]{40,64}) (?P<stage>\d)\t(?P<path>[^\0]+)\0"
    rb"(?:  ctime: \d+:\d+\n"
    rb"  mtime: (?P<seconds>\d+):(?P<nanoseconds>\d+)\n"
    rb"  dev: \d+\tino: \d+\n"
    rb"  uid: \d+\tgid: \d+\n"
    rb"  size: (?P<size>\d+)\tflags: [0-9a-f]+\n)?"
)
_UNTRACKED = re.compile(rb"\? ([^\0]+)\0")
_STAGED = ("ls-files", "--stage", "--debug", "-z", "--full-name")
_FIELDS = ("path", "mode", "blob", "seconds", "nanoseconds", "size")
_LARGEST_COMPARED_BYTES = 64 * 2**20
_SHA1_CHARACTERS = 40
_REGULAR_MODE = b"100"
_NO_FOLDERS = frozenset({b"", b".", b"..", b".git"})


class TrackedFile(NamedTuple):
    """Line of git's index, with time and size of the file when it was added.

    ``changed_ns`` and ``size_bytes`` are -1 if this version of git does not print them; the file is
    then always compared.
    """

    path: bytes
    mode: bytes
    blob: str
    changed_ns: int
    size_bytes: int


def tracked_files(root: Path, *below: str) -> Iterator[TrackedFile]:
    """List the files in the index.

    Raises:
        GitFailed: git can't read the index.
    """
    return _parsed(run_git(root, *_STAGED, *below))


def _parsed(output: bytes, start: int = 0) -> Iterator[TrackedFile]:
    for match in _ENTRY.finditer(output, start):
        path, mode, blob, seconds, nanoseconds, size = match.group(*_FIELDS)
        changed_ns = -1 if seconds is None else int(seconds) * 10**9 + int(nanoseconds)
        yield TrackedFile(path, mode, blob.decode(), changed_ns, -1 if size is None else int(size))


def present_files(root: Path, *below: str) -> tuple[list[bytes], Iterator[TrackedFile]]:
    """List files that are neither in the index nor ignored by a rule, and those in the index.

    Raises:
        GitFailed: git can't list them.
    """
    # one process for both; a tag tells them apart, and untracked files come first
    output = run_git(root, *_STAGED, "-t", "--others", "--exclude-standard", *below)
    untracked, end = [], 0
    while match := _UNTRACKED.match(output, end):
        untracked.append(match[1])
        end = match.end()
    return untracked, _parsed(output, end)


class WorkTree:
    """Files of a work tree. Paths through symbolic links are rejected, even if in the index."""

    def __init__(self, root: Path) -> None:
        self._root = os.fsencode(root)
        self._folders = {b"": True}

    def stat(self, path: bytes) -> os.stat_result:
        """Status of a file, or of a link in its place.

        Raises:
            OSError: the file does not exist, or one of its folders is not a real folder.
        """
        if not self._is_real(path.rpartition(b"/")[0]):
            raise NotADirectoryError(f"{os.fsdecode(path)} is not below a real folder")
        return os.lstat(self._at(path))

    def differs(self, file: TrackedFile) -> bool:
        """True if a file differs from its version in the index."""
        try:
            status = self.stat(file.path)
            if (status.st_mtime_ns, status.st_size) == (file.changed_ns, file.size_bytes):
                return False
            raw = read_regular(Path(os.fsdecode(self._at(file.path))), _LARGEST_COMPARED_BYTES)
        except OSError:
            return True
        digest = hashlib.sha1 if len(file.blob) == _SHA1_CHARACTERS else hashlib.sha256
        return digest(b"blob %d\0" % len(raw) + raw).hexdigest() != file.blob

    def _at(self, path: bytes) -> bytes:
        return self._root + b"/" + path

    def _is_real(self, folder: bytes) -> bool:
        if folder not in self._folders:
            parent, _, name = folder.rpartition(b"/")
            self._folders[folder] = (
                name not in _NO_FOLDERS
                and self._is_real(parent)
                and stat.S_ISDIR(os.lstat(self._at(folder)).st_mode)
            )
        return self._folders[folder]


def count_uncommitted(root: Path, listing: Listing, rules: IgnoreRules, *below: str) -> int:
    """Count files that differ from a commit's listed blobs, were removed, or are new documents.

    Raises:
        GitFailed: git can't list them.
    """
    tree = WorkTree(root)
    changed = 0
    tracked = set[str]()
    untracked, files = present_files(root, *below)
    new = [to_uri(path) for path in untracked]
    for file in files:
        uri = to_uri(file.path)
        if uri is not None and uri in listing.files:
            tracked.add(uri)
            changed += file.blob != listing.files[uri] or tree.differs(file)
        elif uri not in listing.skipped_paths and file.mode.startswith(_REGULAR_MODE):
            new.append(uri)
    uris = [uri for uri in new if uri is not None]
    paths = TrackedPaths(rules, uris)
    added = sum(paths.skip(uri) is None for uri in uris)
    return changed + added + len(listing.files.keys() - tracked)
