"""How commands find a running ``headrace up``: a file in its home, with where its servers are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.child import command_of
from runtime.embedded.lock import DirectoryLock
from runtime.settings import Settings

__all__ = ["announced", "announced_process", "find_running", "owner_lock"]

_FILE = "up.json"
_SHARED = ("redis_url", "database_url", "owner_database_url")


@contextmanager
def announced(settings: Settings) -> Iterator[None]:
    """Tell other commands, as long as this lasts, where the servers of ``settings`` are."""
    path = settings.home_directory / _FILE
    known = {"pid": os.getpid()} | {name: getattr(settings, name) for name in _SHARED}
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)  # the URLs hold passwords
    draft.write_text(json.dumps(known))
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def find_running(settings: Settings) -> Settings | None:
    """The settings with the servers of a running ``up`` filled in; None: there is none."""
    try:
        known = json.loads(_path_of(settings).read_text())
        alive = "headrace" in (command := command_of(int(known["pid"]))) or "gateway" in command
        found = {name: str(known[name]) for name in _SHARED}
    except (OSError, ValueError, KeyError):
        return None
    return settings.model_copy(update=found) if alive else None


def announced_process(settings: Settings) -> int | None:
    """Process id of the ``up`` that was announced last; None: none is announced."""
    try:
        return int(json.loads(_path_of(settings).read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return None


def owner_lock(home: Path) -> DirectoryLock:
    """The lock that a running ``up`` has on its home, from its first moment to its last."""
    return DirectoryLock(home, "up.lock")


def _path_of(settings: Settings) -> Path:
    return settings.home_directory / _FILE
