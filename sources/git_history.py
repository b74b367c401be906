"""Identity of a repository, and the order of its commits."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from sources.git_process import GitFailed, run_git
from sources.permalinks import web_address

__all__ = ["COMMIT", "HEAD", "head", "is_older", "repository_key"]

COMMIT = re.compile(r"[0-9a-f]{40,64}")
HEAD = "HEAD^{commit}"
"""Commit that is checked out, as an argument of git."""


def repository_key(root: Path, is_shallow: bool | None = None) -> str:
    """Identity that is equal for all clones of a repository: its first commit.

    A shallow clone does not have that commit. Its key is made of the address of the remote or, if
    there is none, of the path of the clone. ``is_shallow`` is None if that is unknown.

    Raises:
        GitFailed: git can't read the history.
    """
    if is_shallow is None:
        is_shallow = run_git(root, "rev-parse", "--is-shallow-repository").strip() == b"true"
    if is_shallow:
        return _remote_key(root)
    roots = run_git(root, "rev-list", "--max-parents=0", HEAD, "--").split()
    return min(roots).decode()


def _remote_key(root: Path) -> str:
    try:
        remote = run_git(root, "ls-remote", "--get-url").decode(errors="replace").strip()
    except GitFailed:
        remote = ""
    address = web_address(remote)
    return hashlib.sha256((address or remote or str(root)).encode()).hexdigest()


def head(root: Path, name: str = HEAD) -> tuple[str, int]:
    """Commit at HEAD or of another name, and its time in seconds since 1970.

    Raises:
        GitFailed: there is no such commit, or git can't read it.
    """
    at, commit = run_git(root, "rev-list", "--no-walk", "--timestamp", name, "--").split()
    return commit.decode(), int(at)


def is_older(root: Path, commit: str, at: int | None, other: str, other_at: int | None) -> bool:
    """True if a commit is an ancestor of another one; equal commits are not.

    If the clone does not have the other commit, times decide, and an equal time counts as older.
    A rewritten history counts as newer.
    """
    if commit == other or not COMMIT.fullmatch(other):
        return False
    try:
        beyond = run_git(root, "rev-list", "--count", "--max-count=1", commit, f"^{other}")
        return int(beyond) == 0
    except GitFailed:
        return at is not None and other_at is not None and at <= other_at
