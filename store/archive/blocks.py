"""Format of archive files: a sequence of blocks, each compressed and verified by itself.

A block is a Zstandard frame after a header with its size and the SHA-256 of its raw data. The
header is a skippable frame of the format, so that ``zstd -dc FILE`` prints the contents of the
file. After damage, a reader finds the next intact block by its header.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import zstandard

__all__ = [
    "HEADER_BYTES",
    "BadBlock",
    "Block",
    "Compressor",
    "Decompressor",
    "blocks",
    "intact_blocks",
]

_LEVEL = 6
_HEADER = struct.Struct("<II4sII32s")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_SKIPPABLE = 0x184D2A5B
_MARK = b"HRA1"
_PREFIX = struct.pack("<II4s", _SKIPPABLE, HEADER_BYTES - 8, _MARK)


class BadBlock(Exception):
    """The bytes differ from what was written; the message says how this was detected."""


@dataclass(frozen=True, slots=True)
class Block:
    """Location of a block's frame in its file, and its expected contents; sizes in bytes."""

    start: int
    size: int
    raw_size: int
    sha256: bytes


class Compressor:
    """Creates blocks. Must be used by one thread at a time."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)

    def block(self, raw: bytes, sha256: bytes) -> bytes:
        """Compress ``raw``, whose SHA-256 is given, to a header and a frame."""
        return framed(self._zstd.compress(raw), len(raw), sha256)


def framed(frame: bytes, raw_size: int, sha256: bytes) -> bytes:
    """A compressed frame after its header."""
    header = _HEADER.pack(_SKIPPABLE, HEADER_BYTES - 8, _MARK, len(frame), raw_size, sha256)
    return header + _CHECKSUM.pack(zlib.crc32(header)) + frame


class Decompressor:
    """Decompresses frames. Must be used by one thread at a time."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()

    def raw(self, frame: bytes, raw_size: int, sha256: bytes) -> bytes:
        """Decompress a frame, and verify it.

        Raises:
            BadBlock: the frame differs from what was written.
        """
        try:
            if zstandard.frame_content_size(frame) != raw_size:
                raise BadBlock("its size differs from the one that was written")
            raw = self._zstd.decompress(frame)
        except zstandard.ZstdError as error:
            raise BadBlock(f"it cannot be decompressed ({error})") from None
        if hashlib.sha256(raw).digest() != sha256:
            raise BadBlock("its checksum differs from the one that was written")
        return raw


def blocks(data: bytes) -> Iterator[Block | BadBlock]:
    """The blocks of a file in order; one ``BadBlock`` for each stretch without a valid header."""
    at = 0
    while at < len(data):
        block = _header_at(data, at)
        if block is None:
            yield BadBlock(f"no valid block begins at byte {at:,}")
            at = _next_header(data, at + 1)
        else:
            yield block
            at = block.start + block.size


def intact_blocks(data: bytes) -> Iterator[Block]:
    """The blocks of a file whose headers are all valid.

    Raises:
        BadBlock: the file is empty, or a stretch of it has no valid header.
    """
    if not data:
        raise BadBlock("it is empty")
    for block in blocks(data):
        if isinstance(block, BadBlock):
            raise block
        yield block


def _header_at(data: bytes, at: int) -> Block | None:
    end = at + HEADER_BYTES
    if end > len(data) or not data.startswith(_PREFIX, at):
        return None
    *_, size, raw_size, sha256 = _HEADER.unpack_from(data, at)
    (checksum,) = _CHECKSUM.unpack_from(data, end - _CHECKSUM.size)
    if checksum != zlib.crc32(data[at : end - _CHECKSUM.size]):
        return None
    return Block(end, size, raw_size, sha256)


def _next_header(data: bytes, start: int) -> int:
    """Offset of the next valid header, or the end of the data."""
    at = data.find(_PREFIX, start)
    while at >= 0 and _header_at(data, at) is None:
        at = data.find(_PREFIX, at + 1)
    return len(data) if at < 0 else at
