"""Packs, which are files of contents: a block per content, located by the index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from store.archive.blocks import HEADER_BYTES, BadBlock, Compressor, Decompressor, framed

__all__ = [
    "PACK_BYTES",
    "PACK_CONTENTS",
    "Pack",
    "Span",
    "bytes_of",
    "coalesced",
    "encode_contents",
]

PACK_BYTES = 16 * 2**20
PACK_CONTENTS = 10_000
_GAP_BYTES = 64 * 2**10
_RANGE_BYTES = 8 * 2**20


@dataclass(frozen=True, slots=True)
class Span:
    """Location of a content's frame in a pack; sizes in bytes."""

    sha256: bytes
    start: int
    size: int
    raw_size: int

    @property
    def end(self) -> int:
        """Offset of the next block."""
        return self.start + self.size

    @property
    def stored_bytes(self) -> int:
        """Size of the content in its pack, header included."""
        return self.size + HEADER_BYTES


@dataclass(slots=True)
class Pack:
    """A pack that is being built."""

    parts: list[bytes] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    size: int = 0

    def add(self, block: bytes, sha256: bytes, raw_size: int) -> None:
        """Append a block."""
        frame_size = len(block) - HEADER_BYTES
        self.spans.append(Span(sha256, self.size + HEADER_BYTES, frame_size, raw_size))
        self.parts.append(block)
        self.size += len(block)

    def add_frame(self, frame: bytes, span: Span) -> None:
        """Append a content of another pack unchanged."""
        self.add(framed(frame, span.raw_size, span.sha256), span.sha256, span.raw_size)

    @property
    def is_full(self) -> bool:
        """Return whether the pack has reached its maximum size."""
        return self.size >= PACK_BYTES or len(self.spans) >= PACK_CONTENTS

    @property
    def data(self) -> bytes:
        """Contents of the file."""
        return b"".join(self.parts)

    @property
    def raw_bytes(self) -> int:
        """Uncompressed size of the contents."""
        return sum(span.raw_size for span in self.spans)


def encode_contents(contents: Mapping[str, bytes]) -> Iterator[Pack]:
    """Build packs from contents by hash (hex); all but the last are full."""
    compressor = Compressor()
    pack = Pack()
    for name, raw in contents.items():
        sha256 = bytes.fromhex(name)
        pack.add(compressor.block(raw, sha256), sha256, len(raw))
        if pack.is_full:
            yield pack
            pack = Pack()
    if pack.spans:
        yield pack


def coalesced(spans: Iterable[Span]) -> Iterator[list[Span]]:
    """Group spans of one pack into runs to read at once: near each other and not too long."""
    run: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if run and (
            span.start - run[-1].end > _GAP_BYTES or span.end - run[0].start > _RANGE_BYTES
        ):
            yield run
            run = []
        run.append(span)
    if run:
        yield run


def bytes_of(decompressor: Decompressor, frame: bytes, span: Span) -> bytes:
    """Decompress the content of a span.

    Raises:
        BadBlock: the frame differs from what was written.
    """
    if len(frame) != span.size:
        raise BadBlock("the file ends before it")
    return decompressor.raw(frame, span.raw_size, span.sha256)
