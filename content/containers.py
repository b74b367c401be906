"""Containers of binary documents (PDF, zip, compound file), and the kind of their content."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from content.extractors.archives import Members, open_members
from runtime.errors import Encrypted, LegacyFormat, UnsupportedContent

__all__ = ["COMPOUND_FILE", "PDF", "ZIP", "compound_file_kind", "zip_kind"]

PDF = b"%PDF-"
ZIP = b"PK\x03\x04"
COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

_CONTENT_TYPES = "[Content_Types].xml"
_MAIN_PART = re.compile(
    rb"""ContentType\s*=\s*["']application/vnd\.(?:openxmlformats-officedocument\.|ms-)"""
    rb"(word|presentation|powerpoint|spreadsheet|excel)[^\"']*\.main(?:\+xml)?[\"']",
    re.IGNORECASE,
)
_OFFICE_KINDS = {
    b"word": "word",
    b"presentation": "slides",
    b"powerpoint": "slides",
    b"spreadsheet": "sheet",
    b"excel": "sheet",
}
_KIND_BY_MIMETYPE = {
    b"application/epub+zip": "book",
    b"application/vnd.oasis.opendocument.spreadsheet": "sheet",
    b"application/vnd.oasis.opendocument.spreadsheet-template": "sheet",
}
_OPEN_DOCUMENT = b"application/vnd.oasis.opendocument."
_CHAT_EXPORT = re.compile(r"(?:[^/]+/)?(?:channels|groups|dms|mpims|conversations)\.json")
_SLACK_USERS = re.compile(r"(?:[^/]+/)?users\.json")
_SLACK_DAY = re.compile(r"(?:[^/]+/){1,2}\d{4}-\d\d-\d\d\.json")
_LARGEST_SIGN = 1 << 20


def zip_kind(raw: bytes) -> str:
    """Kind of the document that a zip archive contains.

    Raises:
        UnsupportedContent: the archive is of no known kind; the subclasses ``Encrypted`` and
            ``Damaged`` say that it can't be opened.
        LimitExceeded: the archive has too many members, or they expand too far.
    """
    members = open_members(raw)
    kind = _office_kind(members) or _kind_by_mimetype(members) or _chat_kind(members)
    if kind is None:
        raise UnsupportedContent(
            f"a zip archive of {len(members.names):,} files that is of no known kind",
            "publish its files as documents of their own",
        )
    return kind


def _office_kind(members: Members) -> str | None:
    main_part = _MAIN_PART.search(_small_member(members, _CONTENT_TYPES))
    return _OFFICE_KINDS[main_part[1].lower()] if main_part else None


def _kind_by_mimetype(members: Members) -> str | None:
    mimetype = _small_member(members, "mimetype").strip()
    if mimetype.startswith(_OPEN_DOCUMENT) and mimetype not in _KIND_BY_MIMETYPE:
        raise UnsupportedContent(
            "an OpenDocument file that is not a spreadsheet",
            "save it as .docx or .pptx, and publish that",
        )
    return _KIND_BY_MIMETYPE.get(mimetype)


def _small_member(members: Members, name: str) -> bytes:
    """Bytes of a member, or none if it is missing or so large that it can't be a sign."""
    small = name in members and members.size(name) <= _LARGEST_SIGN
    return members.read(name) if small else b""


def _chat_kind(members: Members) -> str | None:
    """Recognize exports of Slack, ChatGPT and Claude by the names of their files."""
    names = members.names
    if any(map(_CHAT_EXPORT.fullmatch, names)):
        return "conversation"
    if any(map(_SLACK_USERS.fullmatch, names)) and any(map(_SLACK_DAY.fullmatch, names)):
        return "conversation"
    return None


def compound_file_kind(raw: bytes) -> str:
    """Kind of the document in a compound file (OLE2): only old spreadsheets are read.

    Raises:
        Encrypted: the file is an Office document with a password.
        LegacyFormat: the file is an old document of another program.
    """
    names = frozenset(_top_names(raw))
    if "EncryptedPackage" in names:
        raise Encrypted("the document has a password", "save it without a password")
    if names & {"Workbook", "Book"}:
        return "sheet"
    for name, (program, suffix) in _LEGACY.items():
        if name in names:
            raise LegacyFormat(f"a document of {program} in its old format", f"save it as {suffix}")
    raise LegacyFormat(
        "a compound file of an old program", "save it in a current format, such as .docx or .pdf"
    )


_LEGACY = {
    "WordDocument": ("Word", ".docx"),
    "PowerPoint Document": ("PowerPoint", ".pptx"),
    "__properties_version1.0": ("Outlook", ".eml"),
}

_HEADER_BYTES = 512
_ENTRY_BYTES = 128
_MOST_ENTRIES = 100_000
_LAST_SECTOR = 0xFFFFFFFA
"""Numbers from here on mark the end of a chain, free sectors and the like."""
_NO_ENTRY = 0xFFFFFFFF


def _top_names(raw: bytes) -> Iterator[str]:
    """Yield the names of the streams and storages in the root of a compound file.

    A document may embed others in storages below, so names there say nothing about its kind. What
    is damaged is left out ([MS-CFB], sections 2.2 to 2.6).
    """
    directory = _directory(raw)
    count = min(len(directory) // _ENTRY_BYTES, _MOST_ENTRIES)
    if not count:
        return
    (child,) = struct.unpack_from("<I", directory, 76)
    pending, visited = [child], {_NO_ENTRY}
    while pending:
        index = pending.pop()
        if index in visited or index >= count:
            continue
        visited.add(index)
        start = index * _ENTRY_BYTES
        (name_bytes,) = struct.unpack_from("<H", directory, start + 64)
        name = directory[start : start + max(min(name_bytes, 64) - 2, 0)]
        yield name.decode("utf-16-le", "replace")
        pending.extend(struct.unpack_from("<2I", directory, start + 68))


def _directory(raw: bytes) -> bytes:
    """Bytes of the directory, as far as its sectors can be followed."""
    if len(raw) < _HEADER_BYTES:
        return b""
    (shift,) = struct.unpack_from("<H", raw, 30)
    if shift not in (9, 12):
        return b""
    sector_bytes = 1 << shift
    tables = list(_allocation_tables(raw, sector_bytes))
    per_table = sector_bytes // 4
    most_sectors = len(raw) // sector_bytes
    (sector,) = struct.unpack_from("<I", raw, 48)
    parts: list[bytes] = []
    while sector < _LAST_SECTOR and len(parts) < most_sectors:
        parts.append(_sector(raw, sector, sector_bytes))
        table, position = divmod(sector, per_table)
        if len(parts[-1]) < sector_bytes or table >= len(tables):
            break
        next_sector = _sector(raw, tables[table], sector_bytes)[4 * position : 4 * position + 4]
        sector = int.from_bytes(next_sector, "little") if len(next_sector) == 4 else _NO_ENTRY
    return b"".join(parts)


def _allocation_tables(raw: bytes, sector_bytes: int) -> Iterator[int]:
    """Yield the sectors that hold the file allocation table, in order."""
    yield from struct.unpack_from("<109I", raw, 76)
    (sector,) = struct.unpack_from("<I", raw, 68)
    for _ in range(len(raw) // sector_bytes):
        table = _sector(raw, sector, sector_bytes)
        if sector >= _LAST_SECTOR or len(table) < sector_bytes:
            return
        *numbers, sector = struct.unpack(f"<{sector_bytes // 4}I", table)
        yield from numbers


def _sector(raw: bytes, number: int, sector_bytes: int) -> bytes:
    start = (number + 1) * sector_bytes
    return raw[start : start + sector_bytes]
