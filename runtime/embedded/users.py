"""Who an embedded server runs as, and where it may put its socket."""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from runtime.child import User
from runtime.errors import ConfigurationError

__all__ = ["server_user", "short_directory"]

_UNPRIVILEGED = "nobody"
# sun_path holds 104 bytes on macOS (108 on Linux), with the closing NUL
_SOCKET_PATH_LIMIT_BYTES = 103
_SPECIAL = set(",\"'")


def server_user(needed: Sequence[Path]) -> User | None:
    """Whom to become for a server that refuses to be root; None: stay who we are.

    ``needed`` are files and directories that it has to read. Where one of them, or a directory
    above it, is closed to others (root's home), the user keeps the right to enter.

    Raises:
        ConfigurationError: we are root, and the system has no user ``nobody``.
    """
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(_UNPRIVILEGED)
    except KeyError:
        raise ConfigurationError(
            f"Postgres does not run as root, and there is no user {_UNPRIVILEGED} here: "
            "run headrace as an ordinary user"
        ) from None
    closed = any(not _open_to_others(path) for path in needed)
    return User(entry.pw_uid, entry.pw_gid, reach=closed)


def short_directory(wanted: Path, socket_name: str, user: User | None) -> Path:
    """A private directory for a unix socket: ``wanted``, or one among the temporary files.

    The latter where the path is too long for a socket, or holds a comma or a quote: Postgres and
    its clients take a comma as the end of one directory and the beginning of the next.

    Raises:
        ConfigurationError: the shorter one belongs to somebody else.
    """
    owner = os.geteuid() if user is None else user.uid
    directory = wanted
    too_long = len(os.fsencode(wanted / socket_name)) > _SOCKET_PATH_LIMIT_BYTES
    if too_long or _SPECIAL & set(str(wanted)):
        digest = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:12]
        directory = _shortest_temporary_directory() / f"headrace-{digest}"
    if not directory.exists():
        directory.mkdir(mode=0o700)
        os.chown(directory, owner, -1)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner or status.st_mode & 0o077:
        raise ConfigurationError(f"{directory} is not ours alone: remove it, then try again")
    return directory


def _open_to_others(path: Path) -> bool:
    """Whether anybody may read a path and pass through all directories above it."""
    wanted = stat.S_IROTH | stat.S_IXOTH
    above = path.absolute().parents
    return path.stat().st_mode & wanted == wanted and all(
        parent.stat().st_mode & stat.S_IXOTH for parent in above
    )


def _shortest_temporary_directory() -> Path:
    return min(Path(tempfile.gettempdir()), Path("/tmp"), key=lambda path: len(str(path)))  # noqa: S108
