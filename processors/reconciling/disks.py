"""Checks of free space on this host's disks, and of write access to the archive."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from processors.reconciling.findings import Condition
from runtime.errors import ConfigurationError, Unavailable
from store.inspecting_storage import probe

__all__ = ["judge_archive_storage", "judge_room"]

_GIB = 2**30
_SCARCE_BYTES = 2 * _GIB
_EMPTY_BYTES = _GIB // 4


def judge_room(name: str, directory: Path) -> Condition:
    """Judge the free space on the disk that contains, or would contain, a directory."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(there).free
    detail = f"{free / _GIB:,.1f} GiB free at {there}"
    if free < _EMPTY_BYTES:
        return Condition.problem(name, detail, "free up space on this disk")
    if free < _SCARCE_BYTES:
        return Condition.warning(name, detail, "free up space on this disk soon")
    return Condition.ok(name, detail)


async def judge_archive_storage(url: str) -> Condition:
    """Test that a file can be written to the archive, read back and removed."""
    name = "archive.storage"
    try:
        await asyncio.to_thread(probe, url)
    except (ConfigurationError, Unavailable) as error:
        detail, _, cure = str(error).partition(": ")
        return Condition.problem(name, detail, cure or "check HEADRACE_ARCHIVE_URL")
    return Condition.ok(name, f"{url} can be read and written")
