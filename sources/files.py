"""Safe reading of files that may be hostile, and conversion of bytes and paths to text."""

from __future__ import annotations

import codecs
import os
import re
import stat
import time
import weakref
from collections import defaultdict
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO

from sources.types import Content, Skip

__all__ = [
    "ContentFile",
    "fingerprint_of",
    "read_marked",
    "read_regular",
    "to_shown",
    "to_text",
    "to_uri",
]

_SETTLED_NANOSECONDS = 2 * 10**9
"""Longest tick of a file system's clock; within a tick, a file can change unnoticed."""

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_COOKIE = re.compile(rb"^[ \t\f]*(?:#|//|/\*|;|%|--|<!--).*?coding[:=][ \t]*([-\w.]+)")
_COOKIE_LINES = 2
_LONGEST_BYTES = 2048
"""Longest uri of an event."""


class ContentFile:
    """Contents by name in a file without a name, which ends with this object."""

    def __init__(self) -> None:
        self._descriptor, path = mkstemp(prefix="headrace-")
        Path(path).unlink()
        weakref.finalize(self, os.close, self._descriptor)
        self._parts: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._size = 0

    def keep(self, name: str, raw: bytes) -> None:
        """Write a content in place of an earlier one."""
        self._parts.pop(name, None)
        self.add(name, raw)

    def add(self, name: str, raw: bytes) -> None:
        """Write a further part of a content."""
        self._parts[name].append((self._size, len(raw)))
        self._size += len(raw)
        unwritten = memoryview(raw)
        while unwritten:
            unwritten = unwritten[os.write(self._descriptor, unwritten) :]

    def read(self, name: str) -> bytes | None:
        """Read the parts of a content; returns None if none was written."""
        if name not in self._parts:
            return None
        parts = (os.pread(self._descriptor, size, start) for start, size in self._parts[name])
        return b"".join(parts)


def fingerprint_of(status: os.stat_result) -> str:
    """Text that changes whenever the file does, made of its times, size and inode."""
    return f"{status.st_mtime_ns:x}.{status.st_ctime_ns:x}.{status.st_size:x}.{status.st_ino:x}"


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Read the first bytes of a regular file; never waits on a pipe, never follows a link.

    Raises:
        OSError: the file is not regular, or can't be read.
    """
    with _open_regular(path) as file:
        return file.read(most_bytes)


def read_marked(path: Path, most_bytes: int) -> Content:
    """Read as ``read_regular``, with a fingerprint that is empty if the file changed just now."""
    with _open_regular(path) as file:
        before = os.fstat(file.fileno())
        now = time.time_ns()
        raw = file.read(most_bytes)
        after = os.fstat(file.fileno())
    changed = max(before.st_mtime_ns, before.st_ctime_ns)
    is_settled = changed < now - _SETTLED_NANOSECONDS
    same = fingerprint_of(before) == fingerprint_of(after)
    return Content(raw, fingerprint_of(before) if is_settled and same else "")


def to_text(raw: bytes) -> str | Skip:
    """Text of a file, or the reason to skip it.

    Decodes UTF-16 with a byte order mark and UTF-8 with or without, else the encoding that a
    comment in the first two lines declares (PEP 263, also in the style of Emacs). Nothing is
    guessed: text in another encoding without a declaration is skipped.
    """
    text = _decode(raw)
    if text is None:
        return Skip.BINARY if b"\0" in raw else Skip.ENCODING
    if "\0" in text:
        return Skip.BINARY
    return text if text.strip() else Skip.EMPTY


def to_uri(path: bytes) -> str | None:
    """Path as text. Returns None if it is not UTF-8, or too long for a uri."""
    try:
        uri = path.decode()
    except UnicodeDecodeError:
        return None
    return uri if len(path) <= _LONGEST_BYTES else None


def to_shown(path: str | bytes) -> str:
    """Path as printable text, even if it is not UTF-8."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _open_regular(path: Path) -> BinaryIO:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = open(os.open(path, flags), "rb")  # noqa: PTH123, SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is not a regular file")
    return file


def _decode(raw: bytes) -> str | None:
    encoding = "utf-16" if raw.startswith(_UTF16) else "utf-8-sig"
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        return _decode_as_declared(raw)


def _decode_as_declared(raw: bytes) -> str | None:
    matches = map(_COOKIE.match, raw[:4096].splitlines()[:_COOKIE_LINES])
    declared = next((match[1] for match in matches if match), None)
    if declared is None:
        return None
    try:
        text = raw.decode(declared.decode("ascii"))
        text.encode()
    except (LookupError, ValueError):
        return None
    return text
