"""How commands find a running ``headrace up``: a file in its home, with where its servers are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime.child import command_of
from runtime.settings import Settings

__all__ = ["announced", "find_running"]

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


def _path_of(settings: Settings) -> Path:
    return settings.home_directory / _FILE
