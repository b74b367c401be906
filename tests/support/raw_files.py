"""Looking for a text in every file below a directory, compressed ones included."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import zstandard

__all__ = ["files_with"]

_SKIPPABLE = b"\x5b\x2a\x4d\x18"
_FRAME = b"\x28\xb5\x2f\xfd"


def files_with(needles: list[str], directory: Path) -> dict[str, list[str]]:
    """Paths of the files that hold each text; texts that are in no file are absent.

    Files may change or go meanwhile, as servers write them.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(directory.rglob("*")):
        data = b"\0".join(_contents(path))
        for needle in needles:
            if needle.encode() in data:
                found.setdefault(needle, []).append(str(path.relative_to(directory)))
    return found


def _contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and those of its frames if it is one of the archive."""
    try:
        data = path.read_bytes()
    except OSError:  # a directory, a socket, or a file that has gone
        return
    yield data
    if data.startswith(_SKIPPABLE):
        at = data.find(_FRAME)
        while at >= 0:
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[at:])
            at = data.find(_FRAME, at + 4)
