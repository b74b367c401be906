"""Safe reading of files that may be hostile."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import BinaryIO

from sources.types import Content

__all__ = ["fingerprint_of", "read_marked", "read_regular"]

_SETTLED_NANOSECONDS = 2 * 10**9
"""Longest tick of a file system's clock; within a tick, a file can change unnoticed."""


def fingerprint_of(found: os.stat_result) -> str:
    """Text that changes whenever the file does, made of its times, size and inode."""
    return f"{found.st_mtime_ns:x}.{found.st_ctime_ns:x}.{found.st_size:x}.{found.st_ino:x}"


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Read the first bytes of a regular file; never waits on a pipe, never follows a link.

    Raises:
        OSError: the file is not regular, or can't be read.
    """
    with _opened(path) as file:
        return file.read(most_bytes)


def read_marked(path: Path, most_bytes: int) -> Content:
    """Read as ``read_regular``, with a fingerprint that is empty if the file changed just now."""
    with _opened(path) as file:
        before = os.fstat(file.fileno())
        now = time.time_ns()
        raw = file.read(most_bytes)
        after = os.fstat(file.fileno())
    changed = max(before.st_mtime_ns, before.st_ctime_ns)
    is_settled = changed < now - _SETTLED_NANOSECONDS
    same = fingerprint_of(before) == fingerprint_of(after)
    return Content(raw, fingerprint_of(before) if is_settled and same else "")


def _opened(path: Path) -> BinaryIO:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    file = open(os.open(path, flags), "rb")  # noqa: PTH123, SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is not a regular file")
    return file
