"""Small disk that a test can fill: a tmpfs, if it can be mounted."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["fill", "small_disk"]

_BALLAST = "ballast"


@contextmanager
def small_disk(size_mb: int) -> Iterator[Path]:
    """Disk that every user can read; the test is skipped if it can't be mounted."""
    path = Path(tempfile.mkdtemp(prefix="hr-"))
    options = ["-t", "tmpfs", "-o", f"size={size_mb}m,mode=0755", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(["mount", *options]).returncode:
        path.rmdir()
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)
        path.rmdir()


@contextmanager
def fill(disk: Path, leave_kb: int) -> Iterator[None]:
    """Fill a disk except ``leave_kb``, or less if others write to it, until the block ends."""
    ballast = disk / _BALLAST
    try:
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(shutil.disk_usage(disk).free - leave_kb * 2**10))
        yield
    finally:
        ballast.unlink()
