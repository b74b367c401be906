"""Checks whether the archive's storage is usable, and finds its local directory."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem

from runtime.errors import Unavailable
from store.archive.files import Files

__all__ = ["local_directory", "probe"]

_PROBE = b"headrace doctor"


def probe(url: str) -> None:
    """Write a small file, read it back and remove it. Blocks.

    Raises:
        ConfigurationError: the URL has no known file system, or its package is not installed.
        Unavailable: the storage fails; the message names the path.
    """
    files = Files(url)
    path = f".probe-{uuid4().hex}"
    files.write(path, _PROBE)
    try:
        if files.read(path) != _PROBE:
            raise Unavailable(
                f"{files.full(path)} was read back with other content than written: check the "
                "storage"
            )
    finally:
        files.remove(path)


def local_directory(url: str) -> Path | None:
    """Directory of the archive on this host. Returns None if the archive is stored elsewhere."""
    try:
        file_system, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError):
        return None
    return Path(root) if isinstance(file_system, LocalFileSystem) else None
