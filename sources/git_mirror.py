"""Bare mirror of a repository elsewhere, which is fetched before it is synced."""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import IO, Any

from runtime.errors import Unavailable
from sources.git_process import GitFailed, run_git
from sources.permalinks import web_address

__all__ = ["update_mirror"]

_PROTOCOLS = "https:http:ssh:git:file"
_QUIET = ("-c", "gc.autoDetach=false", "-c", "credential.interactive=false")
_LOCK_SECONDS = 0.1
_USER_INFO = re.compile(r"://[^/\s]*@")
_ALL_REFERENCES = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")


def update_mirror(folder: Path, remote: str, stop: Event) -> None:
    """Fetch the branches and tags of a repository into a bare one, which is created if needed.

    Its HEAD becomes that of the remote. A damaged mirror is fetched again as a whole; errors of the
    remote, such as those of network and credentials, leave it as it is. Credentials are those that
    git finds by itself; it never asks for any.

    Args:
        folder: folder of the mirror; one process at a time works in it.
        remote: URL or path of the repository. It must not begin with ``-``.
        stop: event that ends the update soon after it is set.

    Raises:
        Unavailable: the remote can't be read, or ``stop`` was set.
        UsageError: git is not installed, or takes too long.
    """
    with _alone_in(folder, remote, stop):
        try:
            branch = _default_branch(folder.parent, remote, stop)
            _remove_locks(folder)
            try:
                _fetch(folder, remote, branch, stop)
            except GitFailed:
                if _is_whole(folder, stop) or stop.is_set():
                    raise
                shutil.rmtree(folder, ignore_errors=True)
                _fetch(folder, remote, branch, stop)
        except GitFailed as error:
            raise _unavailable(remote, error) from None


def _remove_locks(folder: Path) -> None:
    """Remove the locks of a git that was killed: nothing else works in the folder now."""
    for lock in folder.rglob("*.lock"):
        lock.unlink(missing_ok=True)


def _is_whole(folder: Path, stop: Event) -> bool:
    """True if a mirror has every object that its references need."""
    try:
        _git(folder, "fsck", "--connectivity-only", "--no-dangling", "--no-progress", stop=stop)
    except GitFailed:
        return False
    return True


def _fetch(folder: Path, remote: str, branch: str, stop: Event) -> None:
    if not (folder / "HEAD").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _git(folder, "init", "--quiet", "--bare", "--template=")
    options = (
        "--quiet",
        "--prune",
        "--no-tags",
        "--no-recurse-submodules",
        "--no-write-fetch-head",
    )
    address = web_address(remote)
    if address is not None:  # without user and password; permanent links are made of it
        _git(folder, "config", "remote.origin.url", address)
    arguments = (*_QUIET, "fetch", *options, remote, *_ALL_REFERENCES)
    _git(folder, *arguments, protocols=_PROTOCOLS, stop=stop)
    _git(folder, "symbolic-ref", "HEAD", branch)


def _git(folder: Path, *arguments: str, **options: Any) -> None:
    """Run git in a mirror; a damaged one must not lead git to a repository around it."""
    run_git(folder, "--git-dir=.", *arguments, **options)


def _default_branch(directory: Path, remote: str, stop: Event) -> str:
    """Reference to which HEAD of a remote points, such as ``refs/heads/main``."""
    arguments = (*_QUIET, "ls-remote", "--symref", "--", remote, "HEAD")
    output = run_git(directory, *arguments, protocols=_PROTOCOLS, stop=stop)
    for line in output.decode(errors="replace").splitlines():
        target, _, name = line.partition("\t")
        if target.startswith("ref: refs/heads/") and name == "HEAD":
            return target.removeprefix("ref: ")
    raise GitFailed("it has no HEAD")


@contextmanager
def _alone_in(folder: Path, remote: str, stop: Event) -> Iterator[None]:
    """Wait until no other process works in the folder."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        while not _lock(lock):
            if stop.wait(_LOCK_SECONDS):
                raise _unavailable(remote, GitFailed("another process fetches it"))
        yield


def _lock(lock: IO[str]) -> bool:
    """Lock a file; returns False if another process holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unavailable(remote: str, error: GitFailed) -> Unavailable:
    """Error without the user and password of the address: a token may be in place of the user."""
    message = _USER_INFO.sub("://", f"{remote} can't be fetched: {error}")
    return Unavailable(message, "check the address, and git's credentials for it")
