"""Small containers of binary documents, made of the names and texts that a test gives."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping

__all__ = ["compound_file", "zip_of"]

_SECTOR_BYTES = 512
_FREE, _END, _TABLE = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD


def zip_of(members: Mapping[str, str | bytes]) -> bytes:
    """Zip archive with these members, equal for equal members."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return raw.getvalue()


def compound_file(*names: str, inner: str = "") -> bytes:
    """Compound file (OLE2) with empty streams of these names; ``inner`` is in a storage of one."""
    header = bytearray(_SECTOR_BYTES)
    header[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    struct.pack_into("<5H", header, 24, 62, 3, 0xFFFE, 9, 6)
    struct.pack_into("<I", header, 44, 1)
    struct.pack_into("<I", header, 48, 1)
    struct.pack_into("<2I", header, 68, _END, 0)
    struct.pack_into("<109I", header, 76, 0, *[_FREE] * 108)
    entries = [_entry("Root Entry", 5, child=1)]
    entries += [_entry(name, 2, right=number + 1) for number, name in enumerate(names, 1)]
    last = len(entries)
    entries += [_entry("Storage", 1, child=last + 1 if inner else _FREE)]
    entries += [_entry(inner, 2)] if inner else []
    directory = b"".join(entries)
    sectors = -(-len(directory) // _SECTOR_BYTES)
    chain = [_TABLE, *range(2, sectors + 1), _END]
    table = struct.pack("<128I", *chain, *[_FREE] * (128 - len(chain)))
    return bytes(header) + table + directory.ljust(sectors * _SECTOR_BYTES, b"\0")


def _entry(name: str, kind: int, *, right: int = _FREE, child: int = _FREE) -> bytes:
    encoded = (name + "\0").encode("utf-16-le")
    entry = bytearray(128)
    entry[: len(encoded)] = encoded
    struct.pack_into("<HB", entry, 64, len(encoded), kind)
    struct.pack_into("<3I", entry, 68, _FREE, right, child)
    return bytes(entry)
