"""Directories and files that only their owner may read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO, Any

from runtime.errors import ConfigurationError

__all__ = ["make_private", "open_private"]

_OTHERS = 0o077
_DIRECTORY = 0o700
_FILE = 0o600
_REMEDY = "set HEADRACE_HOME to a directory of your own"


def make_private(directory: Path) -> str:
    """Create a directory, or remove other users' access to ours and to its files.

    Returns a sentence about the correction; empty if none was needed.

    Raises:
        ConfigurationError: the directory can't be created, or is shared with other users.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=_DIRECTORY)
        status = directory.stat()
    except OSError:
        raise ConfigurationError(f"{directory} can't be written to", _REMEDY) from None
    if status.st_uid != os.geteuid():
        raise ConfigurationError(f"{directory} belongs to another user", _REMEDY)
    if status.st_mode & stat.S_ISVTX:
        # a directory shared by all users, such as the temporary one, must stay as it is
        raise ConfigurationError(f"{directory} is shared by all users", _REMEDY)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{directory} can't be written to", _REMEDY)
    is_corrected = _close(directory, status)
    for path in directory.iterdir():
        _close_file(path)
    if not is_corrected:
        return ""
    former_mode = stat.S_IMODE(status.st_mode)
    return f"{directory} was open to other users ({former_mode:04o}); its mode is now 0700"


def open_private(path: Path, mode: str) -> IO[Any]:
    """Call ``open``; a file that it creates is accessible to its owner only."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, _FILE))


def _close(directory: Path, status: os.stat_result) -> bool:
    if not status.st_mode & _OTHERS:
        return False
    directory.chmod(_DIRECTORY)
    return True


def _close_file(path: Path) -> None:
    """Remove other users' access to one of our files; links and foreign files stay unchanged."""
    try:
        status = path.lstat()
        is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if is_own and status.st_mode & _OTHERS:
            path.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS)
    except FileNotFoundError:
        return
