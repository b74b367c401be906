"""Sync of a repository that its git hooks start in the background."""

from __future__ import annotations

import fcntl
import hashlib
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from gateway.failures import one_line
from gateway.output import on_one_line
from gateway.progress import show_nothing
from gateway.servers import prepare_home
from gateway.session import run_client
from gateway.sync.followers import hook_arguments
from gateway.sync.registration import Destination
from gateway.sync.report import SyncReport, describe
from gateway.sync.request import SyncRequest
from runtime.errors import HeadraceError, UsageError
from runtime.private import open_private
from runtime.settings import Settings

__all__ = ["LOG", "hook_line", "queued", "sync_behind_git"]

LOG = "hook.log"
"""Name of the file under the home to which the syncs write."""

_LOG_BYTES = 2**20
_LOCK_CHARACTERS = 16
_LINE = (
    '[ $# = 3 ] && {{ [ "$3" = 0 ] || [ "$1" = "$2" ]; }} || '
    "(trap '' HUP; HEADRACE_HOME={home} {command} >>{log} 2>&1 &) </dev/null >/dev/null 2>&1"
)
"""Only `post-checkout` has three arguments: HEAD before and after, and 0 if only files are new."""


def hook_line(
    settings: Settings, location: str, destination: Destination, include: Sequence[str]
) -> str:
    """Line of a hook that starts `headrace hook run` with these arguments.

    It succeeds at once, whatever becomes of the command in the background. A checkout that leaves
    HEAD at its commit starts nothing.
    """
    home = settings.home_directory
    options = {
        "--user": [] if destination.agent is None else [destination.agent],
        "--collection": destination.collections,
        "--source": [] if destination.source is None else [destination.source],
        "--prefix": [] if destination.prefix is None else [destination.prefix],
        "--include": include,
    }
    command = [
        *(sys.executable, "-P", "-m", "gateway.main"),
        *hook_arguments(destination.project, location),
        *(f"{name}={value}" for name, values in options.items() for value in values),
    ]
    return _LINE.format(
        home=shlex.quote(str(home)), command=shlex.join(command), log=shlex.quote(str(home / LOG))
    )


def sync_behind_git(settings: Settings, request: SyncRequest, location: str) -> list[str]:
    """Sync unless another process waits to do it; returns lines for the log."""
    home = prepare_home(settings)
    log = home / LOG
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        log.replace(home / f"{LOG}.1")  # the output of this process goes there too

    async def main(settings: Settings) -> SyncReport:
        return await request.run_beside(settings, request.open(settings), show_nothing)

    key = f"{request.destination.project} {location}"
    name = hashlib.sha256(key.encode()).hexdigest()[:_LOCK_CHARACTERS]
    with queued(home / f"hook-{name}.lock") as is_next:
        if not is_next:
            return []
        try:
            lines = [*describe(run_client(main))]
        except UsageError as error:
            lines = [f"{location}: {one_line(error)}"]
        except HeadraceError as error:
            lines = [f"{location}: {one_line(error)}; a later sync publishes the commits"]
    return [on_one_line(f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}") for line in lines]


@contextmanager
def queued(path: Path) -> Iterator[bool]:
    """Run the block while no other process is in its own block with the same file.

    Yields False at once if another process waits already: its block begins later, so it does the
    same work. The kernel releases the locks of a process that was killed.

    Args:
        path: file for the lock; it and ``path.waiting`` stay.
    """
    with open_private(path, "a") as running, open_private(Path(f"{path}.waiting"), "a") as waiting:
        try:
            fcntl.flock(waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        fcntl.flock(running, fcntl.LOCK_EX)
        fcntl.flock(waiting, fcntl.LOCK_UN)
        yield True
