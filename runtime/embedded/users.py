"""System user of an embedded server, and location of its socket."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from runtime.child_process import User
from runtime.errors import ConfigurationError

__all__ = ["remove_socket_directory", "server_user", "socket_directory"]

_UNPRIVILEGED = "nobody"
# sun_path holds 104 bytes on macOS (108 on Linux), with the closing NUL
_SOCKET_PATH_LIMIT_BYTES = 103
_SPECIAL = set(",\"'")
_NAME_FILE = "socket-directory"


def server_user(required: Sequence[Path]) -> User | None:
    """Return the user for a server that refuses to run as root, or None to keep the current user.

    ``required`` are files and directories that the server has to read. If one of them, or a
    directory above it, is closed to others (root's home), the user keeps the right to enter.

    Raises:
        ConfigurationError: this process is root, and the system has no user ``nobody``.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED)
    except KeyError:
        raise ConfigurationError(
            f"Postgres does not run as root, and this system has no user {_UNPRIVILEGED}",
            "run headrace as an ordinary user",
        ) from None
    is_closed = any(not _open_to_others(path) for path in required)
    return User(entry.pw_uid, entry.pw_gid, reach=is_closed)


def socket_directory(home: Path, socket_name: str, user: User | None) -> Path:
    """Return a private directory for a unix socket: below ``home``, or among the temporary files.

    A temporary directory is used if the path is too long for a socket, or holds a comma or a quote:
    Postgres and its clients read a comma as the end of one directory and the beginning of the next.
    Its name is random, so that another user can't take it first, and is stored in ``home``, so that
    URLs stay the same.

    Raises:
        ConfigurationError: the directory below ``home`` is accessible to other users.
    """
    owner = os.geteuid() if user is None else user.uid
    preferred = home / "socket"
    too_long = len(os.fsencode(preferred / socket_name)) > _SOCKET_PATH_LIMIT_BYTES
    if too_long or _SPECIAL & set(str(preferred)):
        return _temporary_directory(home / _NAME_FILE, owner)
    with suppress(FileExistsError):
        _make(preferred, owner)
    if not _is_private(preferred, owner):
        raise ConfigurationError(
            f"{preferred} is accessible to other users or is not a directory of this user",
            "remove it, then try again",
        )
    return preferred


def remove_socket_directory(home: Path, directory: Path) -> None:
    """Remove a socket directory outside of ``home`` after its server has ended."""
    if directory.parent != home:
        shutil.rmtree(directory, ignore_errors=True)


def _temporary_directory(name_file: Path, owner: int) -> Path:
    """Return the directory of the last start if its name is free or still ours, else a new one."""
    parent = _shortest_temporary_directory()
    with suppress(OSError):
        former = parent / Path(name_file.read_text().strip()).name
        with suppress(FileExistsError):
            _make(former, owner)
        if former != parent and _is_private(former, owner):
            return former
    directory = Path(tempfile.mkdtemp(prefix="headrace-", dir=parent))
    os.chown(directory, owner, -1)
    name_file.write_text(directory.name)
    return directory


def _make(directory: Path, owner: int) -> None:
    directory.mkdir(mode=0o700)
    os.chown(directory, owner, -1)


def _is_private(directory: Path, owner: int) -> bool:
    """Return whether it is a directory (not a link) that only its owner may enter."""
    status = directory.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == owner and not status.st_mode & 0o077


def _open_to_others(path: Path) -> bool:
    """Return whether any user may read a path and pass through all directories above it."""
    needed_bits = stat.S_IROTH | stat.S_IXOTH
    parents = path.absolute().parents
    return path.stat().st_mode & needed_bits == needed_bits and all(
        parent.stat().st_mode & stat.S_IXOTH for parent in parents
    )


def _shortest_temporary_directory() -> Path:
    return min(Path(tempfile.gettempdir()), Path("/tmp"), key=lambda path: len(str(path)))  # noqa: S108
