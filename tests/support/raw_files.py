"""Search for texts in every file below a directory, compressed ones included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import zstandard

__all__ = ["files_with"]

_SKIPPABLE = b"\x5b\x2a\x4d\x18"
_FRAME = b"\x28\xb5\x2f\xfd"


def files_with(needles: list[str], directory: Path) -> dict[str, list[str]]:
    """Paths of the files that contain each text; texts without a file are absent.

    Files may change or disappear during the search, because servers write them.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(directory.rglob("*")):
        data = b"\0".join(_contents(path))
        for needle in needles:
            if needle.encode() in data:
                found.setdefault(needle, []).append(str(path.relative_to(directory)))
    return found


def _contents(path: Path) -> Iterator[bytes]:
    """Bytes of a file, and of its decompressed frames if it is an archive file."""
    try:
        data = path.read_bytes()
    except OSError:  # a directory, a socket, or a missing file
        return
    yield data
    if data.startswith(_SKIPPABLE):
        at = data.find(_FRAME)
        while at >= 0:
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[at:])
            at = data.find(_FRAME, at + 4)
