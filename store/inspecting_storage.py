"""Whether the storage of the archive can be used, and where it is."""

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
    """Write a small file, read it back, remove it. Blocks.

    Raises:
        ConfigurationError: no file system is known for the URL, or its package is absent.
        Unavailable: the storage fails; the message names the path.
    """
    files = Files(url)
    path = f".probe-{uuid4().hex}"
    files.write(path, _PROBE)
    try:
        if files.read(path) != _PROBE:
            raise Unavailable(f"{files.full(path)} isn't read back as written: check the storage")
    finally:
        files.remove(path)


def local_directory(url: str) -> Path | None:
    """Where the archive is on this host; None: it is elsewhere."""
    try:
        file_system, root = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError):
        return None
    return Path(root) if isinstance(file_system, LocalFileSystem) else None
