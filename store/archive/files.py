"""Files under one URL, in a local directory or in any storage that fsspec supports.

A path may also name a part of a file, as ``FILE#START-END`` with offsets in bytes: see
``store.archive.shared_files``. Every method blocks: call it in a thread.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from runtime.errors import ConfigurationError, Unavailable
from runtime.secrets import masked

__all__ = ["Files", "StoredFile", "file_of", "is_part", "part_path"]

_PART = re.compile(r"(?P<file>.+)#(?P<start>\d+)-(?P<end>\d+)")


def part_path(file: str, start: int, end: int) -> str:
    """Path of a part of a file, from byte ``start`` up to ``end``."""
    return f"{file}#{start}-{end}"


def file_of(path: str) -> str:
    """Path of the file that a path names, or of which it names a part."""
    part = _PART.fullmatch(path)
    return path if part is None else part["file"]


def is_part(path: str) -> bool:
    """Return whether a path names a part of a file."""
    return _PART.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """An existing file; ``path`` is relative to the archive's URL."""

    path: str
    size_bytes: int
    modified_at: datetime


class Files:
    """Immutable files, each of which is written once, completely or not at all.

    Every method raises ``Unavailable``, with the path in its message, if the storage fails.
    """

    def __init__(self, url: str) -> None:
        """Use the directory or bucket at ``url``; does no I/O.

        Raises:
            ConfigurationError: the URL has no known file system, or its package is not installed.
        """
        self._url = url.rstrip("/")
        self._remote, self._root = _file_system(self._url)
        self._is_local = isinstance(self._remote, LocalFileSystem)

    def full(self, path: str) -> str:
        """Full path or URL of a file, for messages."""
        return f"{self._root if self._is_local else self._url}/{path}"

    def write(self, path: str, data: bytes) -> None:
        """Write a file completely; if this raises, the file does not exist."""
        with self._explained(path, "written"):
            if self._is_local:
                _write_local(Path(self._at(path)), data)
            else:
                self._remote.pipe_file(self._at(path), data)

    def read(self, path: str) -> bytes:
        """Read a whole file, or a whole part of one; shorter if the file ends before.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        part = _PART.fullmatch(path)
        with self._explained(path, "read"):
            if part is None:
                return bytes(self._remote.cat_file(self._at(path)))
            start, end = int(part["start"]), int(part["end"])
            return bytes(self._remote.cat_file(self._at(part["file"]), start=start, end=end))

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges of a file, each from start to end; shorter if the file ends before.

        In a part of a file, offset 0 is the first byte of the part.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        part = _PART.fullmatch(path)
        if part is not None:
            first = int(part["start"])
            moved = [(first + start, first + end) for start, end in ranges]
            return self.read_ranges(part["file"], moved)
        with self._explained(path, "read"):
            if self._is_local:
                return _read_local(Path(self._at(path)), ranges)
            starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
            paths = [self._at(path)] * len(ranges)
            parts = self._remote.cat_ranges(paths, starts, ends, on_error="raise")
            return [bytes(part) for part in parts]

    def remove(self, path: str) -> None:
        """Remove a file, which need not exist; not a part of one."""
        with self._explained(path, "removed"), suppress(FileNotFoundError):
            self._remote.rm_file(self._at(path))

    def listed(self, folder: str) -> list[StoredFile]:
        """All files in a folder and its subfolders, including unfinished ones."""
        with self._explained(folder, "listed"):
            self._remote.invalidate_cache()
            try:
                entries = self._remote.find(self._at(folder), detail=True)
            except FileNotFoundError:
                return []
            return [self._stored(path, details) for path, details in sorted(entries.items())]

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _stored(self, path: str, details: dict[str, Any]) -> StoredFile:
        relative = path.removeprefix(self._root).lstrip("/")
        return StoredFile(relative, int(details["size"]), _modified(details))

    @contextmanager
    def _explained(self, path: str, verb: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # remote file systems raise errors of their own packages
            if isinstance(error, FileNotFoundError) and verb == "read":
                raise
            raise Unavailable(
                f"{self.full(path)} can't be {verb} ({_reason(error)})",
                "check the free space of the archive's storage, and HEADRACE_ARCHIVE_URL",
            ) from error


def _file_system(url: str) -> tuple[Any, str]:
    try:
        file_system, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ConfigurationError(
            f"HEADRACE_ARCHIVE_URL={url} needs a package that is not installed ({error})",
            "install it; for S3 that is `pip install 'headrace[s3]'`",
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"HEADRACE_ARCHIVE_URL={url}: {error}") from error
    return file_system, str(root).rstrip("/")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "no space is left"
    return masked(" ".join(f"{type(error).__name__}: {error}".split()))[:300]


def _modified(details: dict[str, Any]) -> datetime:
    """Time of modification, which file systems report under different names."""
    modified = details.get("mtime") or details.get("LastModified") or details.get("created")
    if isinstance(modified, datetime):
        return modified if modified.tzinfo else modified.replace(tzinfo=UTC)
    if isinstance(modified, int | float):
        return datetime.fromtimestamp(modified, UTC)
    return datetime.now(UTC)


def _write_local(path: Path, data: bytes) -> None:
    _make_private(path.parent)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        _sync_directory(path.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _make_private(directory: Path) -> None:
    """Create a directory and its parents, accessible by the owner only."""
    if directory.is_dir():
        return
    _make_private(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    _sync_directory(directory.parent)


def _sync_directory(directory: Path) -> None:
    """Make new names in a directory survive a power failure."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_local(path: Path, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    with path.open("rb") as file:
        return [os.pread(file.fileno(), end - start, start) for start, end in ranges]
