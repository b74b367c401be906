"""Reading files that a stranger may have made."""

from __future__ import annotations

import os
import stat
from pathlib import Path

__all__ = ["read_regular"]


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The first bytes of a regular file; never waits on a pipe, never follows a link.

    Raises:
        OSError: it is none, or can't be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - a Path can't open a descriptor
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a regular file")
        return file.read(most_bytes)
