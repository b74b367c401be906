"""Which repository a clone is of, and which of two commits is the newer one."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from sources.git_process import GitFailed, run_git
from sources.permalinks import web_address

__all__ = ["COMMIT", "committed_at", "is_older", "repository_key"]

COMMIT = re.compile(r"[0-9a-f]{40,64}")


def repository_key(root: Path, commit: str) -> str:
    """Equal for all clones of one repository: its first commit.

    A shallow clone does not have that one: there it is the address of the remote, and where there
    is none the path of the clone.

    Raises:
        GitFailed: git can't read the history.
    """
    if run_git(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
        return _remote_key(root)
    roots = run_git(root, "rev-list", "--max-parents=0", commit).split()
    return min(roots).decode()


def _remote_key(root: Path) -> str:
    try:
        remote = run_git(root, "ls-remote", "--get-url").decode(errors="replace").strip()
    except GitFailed:
        remote = ""
    address = web_address(remote)
    return hashlib.sha256((address or remote or str(root)).encode()).hexdigest()


def committed_at(root: Path, commit: str) -> int:
    """Seconds since 1970.

    Raises:
        GitFailed: git can't read the commit.
    """
    line = run_git(root, "rev-list", "--no-walk", "--timestamp", commit)
    return int(line.split()[0])


def is_older(root: Path, commit: str, at: int | None, other: str, other_at: int | None) -> bool:
    """Whether a commit is an ancestor of another one; equal ones are not.

    Times decide where the clone does not have the other one: an equal one is older. A history that
    was rewritten is newer.
    """
    if commit == other or not COMMIT.fullmatch(other):
        return False
    try:
        beyond = run_git(root, "rev-list", "--count", "--max-count=1", commit, f"^{other}")
        return int(beyond) == 0
    except GitFailed:
        return at is not None and other_at is not None and at <= other_at
