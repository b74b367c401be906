"""Zip archives of Office files and books: members that are counted before one is opened."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Sequence

from runtime.errors import Damaged, Encrypted, LegacyFormat, LimitExceeded

__all__ = ["Members", "open_members"]

MOST_MEMBERS = 2_000
MOST_BYTES = 256 << 20
MOST_EXPANSION = 200
_NO_BOMB_BYTES = 64 << 10  # a few kilobytes of blanks may well be deflated 1,000 times
_DIRECTORY_ENTRY = b"PK\x01\x02"
_COMPOUND_FILE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_FLAG_ENCRYPTED = 0x1
_METHODS = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ArithmeticError,
    LookupError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)
"""Errors of ``zipfile`` for damaged bytes."""
_SAVE_AGAIN = "save it again with the program that made it, and publish that"


class Members:
    """Members of an archive whose number, size and expansion are within the limits."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._infos = {info.filename: info for info in archive.infolist() if not info.is_dir()}

    @property
    def names(self) -> Sequence[str]:
        """Names of all files, in the order of the archive."""
        return tuple(self._infos)

    def __contains__(self, name: object) -> bool:
        return name in self._infos

    def read(self, name: str) -> bytes:
        """Return the bytes of a member, not more than its directory entry announces.

        Raises:
            Damaged: the archive has no such member, or the member can't be read.
        """
        info = self._infos.get(name)
        if info is None:
            raise Damaged(f"the archive has no member {name[:100]!r}", _SAVE_AGAIN)
        try:
            return self._archive.read(info)
        except _UNREADABLE as error:
            raise Damaged(f"member {name[:100]!r} can't be read", _SAVE_AGAIN) from error


def open_members(raw: bytes) -> Members:
    """Open a zip archive after counting its members.

    Raises:
        Encrypted: the archive or a member has a password.
        LegacyFormat: the bytes are an Office file of the time before 2007.
        LimitExceeded: there are more than 2,000 members, more than 256 MiB in them, or a member
            expands more than 200 times.
        Damaged: the bytes are not a zip archive that can be read.
    """
    _refuse_compound_file(raw)
    # each entry of the directory becomes an object: a cheap count comes before the parse. Entries
    # of archives inside this one count too, hence the margin.
    if raw.count(_DIRECTORY_ENTRY) > 10 * MOST_MEMBERS:
        raise _too_many()
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
    except _UNREADABLE as error:
        raise Damaged("the bytes are not a readable zip archive", _SAVE_AGAIN) from error
    _check(archive.infolist())
    return Members(archive)


def _refuse_compound_file(raw: bytes) -> None:
    """Name the reason for the container that encrypted and old Office files have in common."""
    if not raw.startswith(_COMPOUND_FILE):
        return
    if _ENCRYPTED_PACKAGE in raw:
        raise Encrypted("the file has a password", "save it without a password")
    raise LegacyFormat(
        "the file has a format of Office from before 2007",
        "save it as .docx, .pptx or .xlsx, and publish that",
    )


def _check(infos: Sequence[zipfile.ZipInfo]) -> None:
    if len(infos) > MOST_MEMBERS:
        raise _too_many()
    if sum(info.file_size for info in infos) > MOST_BYTES:
        raise LimitExceeded(
            f"the archive expands to more than {MOST_BYTES >> 20} MiB",
            "publish its parts as documents of their own",
        )
    for info in infos:
        if info.flag_bits & _FLAG_ENCRYPTED:
            raise Encrypted("the archive has a password", "save it without a password")
        if info.compress_type not in _METHODS:
            # other methods can expand a block of a few bytes to many megabytes at once
            raise Damaged(
                f"a member is compressed by method {info.compress_type}, which these formats "
                "do not use",
                _SAVE_AGAIN,
            )
        if info.file_size > max(_NO_BOMB_BYTES, MOST_EXPANSION * info.compress_size):
            raise LimitExceeded(
                f"a member expands more than {MOST_EXPANSION} times",
                "publish its text in another format",
            )


def _too_many() -> LimitExceeded:
    return LimitExceeded(
        f"the archive has more than {MOST_MEMBERS:,} members",
        "publish its parts as documents of their own",
    )
