"""Discovery of a running ``headrace up``: a file in its home holds the URLs of its servers."""

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
    """Publish the servers of ``settings`` to other commands until the context ends."""
    path = settings.home_directory / _FILE
    announcement = {"pid": os.getpid()} | {name: getattr(settings, name) for name in _SHARED}
    draft = path.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)  # the URLs hold passwords
    draft.write_text(json.dumps(announcement))
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def find_running(settings: Settings) -> Settings | None:
    """Fill in the servers of a running ``up``. Returns None if none runs."""
    try:
        announcement = json.loads(_path_of(settings).read_text())
        alive = (
            "headrace" in (command := command_of(int(announcement["pid"]))) or "gateway" in command
        )
        urls = {name: str(announcement[name]) for name in _SHARED}
    except (OSError, ValueError, KeyError):
        return None
    return settings.model_copy(update=urls) if alive else None


def announced_process(settings: Settings) -> int | None:
    """Process id of the ``up`` that was announced last. Returns None if none is announced."""
    try:
        return int(json.loads(_path_of(settings).read_text())["pid"])
    except (OSError, ValueError, KeyError):
        return None


def owner_lock(home: Path) -> DirectoryLock:
    """Lock that a running ``up`` holds on its home, from start to end."""
    return DirectoryLock(home, "up.lock")


def _path_of(settings: Settings) -> Path:
    return settings.home_directory / _FILE
