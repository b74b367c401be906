"""Containers of hostile documents: PDF files, zip archives and compound files, byte by byte."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence

__all__ = [
    "Parts",
    "bomb",
    "compound_file",
    "doubled",
    "overlapping_zip",
    "patched",
    "pdf",
    "stream",
    "zipped",
]

Parts = Mapping[str, str | bytes]
"""Members of an archive by name."""

_CENTRAL = b"PK\x01\x02"


def zipped(parts: Parts, method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    """Pack an archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.comment = comment
        for name, content in parts.items():
            archive.writestr(_member(name), content, method)
    return buffer.getvalue()


def doubled(name: str, contents: Sequence[str]) -> bytes:
    """Pack an archive of members that have the same name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for content in contents:
            archive.writestr(_member(name), content)
    return buffer.getvalue()


def _member(name: str) -> zipfile.ZipInfo:
    """Member of the year 1980: with the time of now, a seed would make other files each time."""
    return zipfile.ZipInfo(name)


def patched(archive: bytes, offset: int, value: bytes) -> bytes:
    """Overwrite a field of each entry of an archive's directory, at an offset in the entry."""
    raw = bytearray(archive)
    position = raw.find(_CENTRAL)
    while position >= 0:
        raw[position + offset : position + offset + len(value)] = value
        position = raw.find(_CENTRAL, position + 4)
    return bytes(raw)


def bomb(megabytes: int) -> bytes:
    """Compress so many megabytes of blanks to a thousandth of them, as a stream of zlib."""
    compressor = zlib.compressobj(9)
    block = b" " * 2**20
    return b"".join(compressor.compress(block) for _ in range(megabytes)) + compressor.flush()


def overlapping_zip(name: str, content: str, entries: int) -> bytes:
    """Pack an archive whose directory names the same bytes many times."""
    raw = zipped({name: content})
    start = raw.find(_CENTRAL)
    end = raw.rfind(b"PK\x05\x06")
    entry = raw[start:end]
    directory = b"".join(
        entry.replace(name.encode(), f"{number:0{len(name)}}".encode()[: len(name)])
        for number in range(entries - 1)
    )
    tail = struct.pack(
        "<4s4H2IH", b"PK\x05\x06", 0, 0, entries, entries, len(directory + entry), start, 0
    )
    return raw[:start] + entry + directory + tail


def stream(content: bytes, entries: str = "") -> bytes:
    """Object of a PDF that holds bytes."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (
        len(content),
        entries.encode(),
        content,
    )


def pdf(objects: Sequence[str | bytes], trailer: str = "") -> bytes:
    """Write a PDF of these objects, from number 1; the first is its catalogue."""
    raw = bytearray(b"%PDF-1.7\n")
    offsets = []
    for number, content in enumerate(objects, 1):
        offsets.append(len(raw))
        body = content if isinstance(content, bytes) else content.encode()
        raw += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(raw)
    raw += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    raw += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    raw += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R {trailer} >>\n".encode()
    return bytes(raw + b"startxref\n%d\n%%%%EOF\n" % start)


def compound_file(first_entry: bytes, table: Sequence[int]) -> bytes:
    """Write a compound file with one sector of its directory, and one of its allocation table."""
    head = bytearray(512)
    head[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    struct.pack_into("<5H", head, 24, 62, 3, 0xFFFE, 9, 6)
    struct.pack_into("<9I", head, 40, 0, 1, 1, 0, 4096, 0xFFFFFFFE, 0, 0xFFFFFFFE, 0)
    struct.pack_into("<109I", head, 76, 0, *[0xFFFFFFFF] * 108)
    numbers = [*table, *[0xFFFFFFFF] * (128 - len(table))]
    return bytes(head) + struct.pack("<128I", *numbers) + first_entry.ljust(512, b"\0")
