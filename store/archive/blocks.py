"""The format of every file: a run of blocks, each compressed and verified by itself.

A block is a Zstandard frame behind a header that tells its size and the SHA-256 of what it holds.
The header is a skippable frame of the format, so that ``zstd -dc FILE`` prints what the file holds;
and a reader that meets damage finds the next whole block by its header.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import zstandard

__all__ = ["HEADER_BYTES", "BadBlock", "Block", "Compressor", "Decompressor", "blocks"]

_LEVEL = 6
_HEADER = struct.Struct("<II4sII32s")
_CHECKSUM = struct.Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_SKIPPABLE = 0x184D2A5B
_MARK = b"HRA1"
_PREFIX = struct.pack("<II4s", _SKIPPABLE, HEADER_BYTES - 8, _MARK)


class BadBlock(Exception):
    """The bytes aren't what was written; says how it shows."""


@dataclass(frozen=True, slots=True)
class Block:
    """Where a block's frame lies in its file, and what it must hold; sizes in bytes."""

    start: int
    size: int
    raw_size: int
    sha256: bytes


class Compressor:
    """Makes blocks. For one thread at a time."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)

    def block(self, raw: bytes, sha256: bytes) -> bytes:
        """Header and frame of ``raw``, whose SHA-256 is given."""
        return framed(self._zstd.compress(raw), len(raw), sha256)


def framed(frame: bytes, raw_size: int, sha256: bytes) -> bytes:
    """A compressed frame behind its header."""
    header = _HEADER.pack(_SKIPPABLE, HEADER_BYTES - 8, _MARK, len(frame), raw_size, sha256)
    return header + _CHECKSUM.pack(zlib.crc32(header)) + frame


class Decompressor:
    """Reads frames back. For one thread at a time."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()

    def raw(self, frame: bytes, raw_size: int, sha256: bytes) -> bytes:
        """What a frame holds, verified.

        Raises:
            BadBlock: it isn't what was written.
        """
        try:
            if zstandard.frame_content_size(frame) != raw_size:
                raise BadBlock("its size isn't the one that was written")
            raw = self._zstd.decompress(frame)
        except zstandard.ZstdError as error:
            raise BadBlock(f"it can't be decompressed ({error})") from None
        if hashlib.sha256(raw).digest() != sha256:
            raise BadBlock("its checksum isn't the one that was written")
        return raw


def blocks(data: bytes) -> Iterator[Block | BadBlock]:
    """The blocks of a file in order; for each stretch without a sound header, one ``BadBlock``."""
    at = 0
    while at < len(data):
        block = _header_at(data, at)
        if block is None:
            yield BadBlock(f"no sound block begins at byte {at:,}")
            at = _next_header(data, at + 1)
        else:
            yield block
            at = block.start + block.size


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
    """Where the next sound header begins, or the end of the data."""
    at = data.find(_PREFIX, start)
    while at >= 0 and _header_at(data, at) is None:
        at = data.find(_PREFIX, at + 1)
    return len(data) if at < 0 else at
