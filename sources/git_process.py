"""Runs git without running any code of the repository.

Only plumbing that reads objects is used: no checkout, no index, no working tree, hence no filters
and no textconv. Hooks and the file system monitor are disabled as well, and so are all network
protocols but those that a mirror is fetched by.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from select import select
from tempfile import TemporaryFile
from threading import Event, Thread, Timer
from typing import IO

from runtime.errors import UsageError
from sources.types import Content, Read

__all__ = ["LARGEST_OUTPUT_BYTES", "LONGEST_WAIT", "GitFailed", "blob_reader", "run_git"]

_SAFE_OPTIONS = (
    "--no-pager",
    "--no-optional-locks",
    "--no-replace-objects",
    "--literal-pathspecs",
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", f"core.attributesFile={os.devnull}"),
    *("-c", "protocol.allow=never"),
)
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
_REMOVED = frozenset(
    {
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_COMMON_DIR",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_PREFIX",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_EXTERNAL_DIFF",
        "GIT_TRACE",
    }
)
"""Variables that a caller, such as a hook, may have set for another repository."""


LARGEST_OUTPUT_BYTES = 128 * 2**20
"""Limit for one listing, about a million files. A few kilobytes of objects can name billions."""

LONGEST_WAIT = timedelta(minutes=5)
_STOP_SECONDS = 0.1
_ERROR_TEXT_BYTES = 4096
_UNEXPECTED_END = (
    "git ended while reading",
    "check the repository with `git fsck`, then sync again",
)


class GitFailed(Exception):
    """git ended with an error; the message is the first line of its stderr."""


def run_git(
    directory: Path,
    *arguments: str,
    own_settings: bool = False,
    protocols: str = "none",
    stop: Event | None = None,
) -> bytes:
    """Run git and return its output.

    Args:
        directory: directory in which git runs.
        arguments: command of git and its arguments.
        own_settings: use the settings of the user and the system, and the hooks that they name.
        protocols: protocols to other repositories that git may use, separated by colons.
        stop: event that ends git soon after it is set.

    Raises:
        GitFailed: git ended with an error, or by ``stop``.
        UsageError: git is not installed, its output is too large, or it takes too long; a hostile
            repository may be built to exhaust memory or to block its reader.
    """
    with (
        TemporaryFile() as errors,
        subprocess.Popen(  # noqa: S603 - a list of arguments, none of them the repository's
            _command(directory, arguments, () if own_settings else _SAFE_OPTIONS),
            env=_environment(
                {} if own_settings else _ENVIRONMENT | {"GIT_ALLOW_PROTOCOL": protocols}
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            # without a terminal, ssh has nothing to ask for a passphrase or a host key
            start_new_session=protocols != "none",
        ) as process,
        _time_limit(process, directory),
        _killed_by(stop, process),
    ):
        output = process.stdout.read(LARGEST_OUTPUT_BYTES + 1) if process.stdout else b""
        if len(output) > LARGEST_OUTPUT_BYTES:
            process.kill()
            raise UsageError(
                f"git printed more than {LARGEST_OUTPUT_BYTES:,} bytes about {directory}",
                "sync a part of it, and only what you trust",
            )
        if process.wait():
            errors.seek(0)
            error_text = errors.read(_ERROR_TEXT_BYTES).decode(errors="replace").strip()
            raise GitFailed((error_text or f"exit {process.returncode}").splitlines()[0])
    return output


@contextmanager
def _time_limit(process: subprocess.Popen[bytes], directory: Path) -> Iterator[None]:
    """Kill git after LONGEST_WAIT and raise UsageError; a pipe instead of a file would block it."""
    timed_out = Event()

    def kill() -> None:
        timed_out.set()
        process.kill()

    timer = Timer(LONGEST_WAIT.total_seconds(), kill)
    timer.start()
    try:
        yield
    except GitFailed:
        if not timed_out.is_set():
            raise
    finally:
        timer.cancel()
    if timed_out.is_set():
        raise _timeout_error(directory)


@contextmanager
def _killed_by(stop: Event | None, process: subprocess.Popen[bytes]) -> Iterator[None]:
    if stop is None:
        yield
        return
    ended = Event()

    def kill() -> None:
        while not ended.wait(_STOP_SECONDS):
            if stop.is_set():
                process.kill()

    thread = Thread(target=kill, name="git", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _timeout_error(directory: Path) -> UsageError:
    return UsageError(f"git did not finish reading {directory} in {LONGEST_WAIT}", "run `git fsck`")


@contextmanager
def blob_reader(directory: Path) -> Iterator[Read]:
    """Reader of blobs by id, through one git process that ends with the context."""
    with subprocess.Popen(  # noqa: S603 - a list of arguments, none of them the repository's
        _command(directory, ("cat-file", "--batch")),
        env=_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        requests, answers = process.stdin, process.stdout
        if requests is None or answers is None:
            raise UsageError("the pipes to git are missing", "sync again")
        try:
            yield lambda _, blob: Content(_read_blob(directory, requests, answers, blob), blob)
        finally:
            process.kill()


def _read_blob(directory: Path, requests: IO[bytes], answers: IO[bytes], blob: str) -> bytes:
    try:
        requests.write(f"{blob}\n".encode())
        requests.flush()
    except BrokenPipeError as error:
        raise UsageError(*_UNEXPECTED_END) from error
    if not select([answers], [], [], LONGEST_WAIT.total_seconds())[0]:
        raise _timeout_error(directory)
    head = answers.readline().split()
    if not head:
        raise UsageError(*_UNEXPECTED_END)
    if len(head) != 3 or head[1] != b"blob":
        raise OSError(f"git has no blob {blob}")
    size_bytes = int(head[2])
    raw = answers.read(size_bytes + 1)
    if len(raw) != size_bytes + 1:
        raise UsageError(*_UNEXPECTED_END)
    return raw[:-1]


def _command(
    directory: Path, arguments: tuple[str, ...], options: tuple[str, ...] = _SAFE_OPTIONS
) -> list[str]:
    git = shutil.which("git")
    if git is None:
        raise UsageError("git is not on the PATH", "install it to sync a git repository")
    return [git, "-C", str(directory), *options, *arguments]


def _environment(variables: Mapping[str, str] = _ENVIRONMENT) -> dict[str, str]:
    others = {key: value for key, value in os.environ.items() if key not in _REMOVED}
    return {**others, **variables}
