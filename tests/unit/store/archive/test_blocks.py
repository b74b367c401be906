"""Block format of the archive's files."""

from __future__ import annotations

import hashlib
import random

import zstandard

from store.archive.blocks import (
    HEADER_BYTES,
    BadBlock,
    Block,
    Compressor,
    Decompressor,
    blocks,
)
from store.archive.content_files import Pack, Span, bytes_of, coalesced, encode_contents
from tests.support.changes import sha256_of

TEXTS = [b"first " * 100, b"second", b"", random.Random(1).randbytes(5000)]


def written() -> bytes:
    compressor = Compressor()
    return b"".join(compressor.block(raw, hashlib.sha256(raw).digest()) for raw in TEXTS)


def read(data: bytes) -> list[bytes | BadBlock]:
    found: list[bytes | BadBlock] = []
    for block in blocks(data):
        try:
            found.append(block if isinstance(block, BadBlock) else raw_of(data, block))
        except BadBlock as error:
            found.append(error)
    return found


def raw_of(data: bytes, block: Block) -> bytes:
    frame = data[block.start : block.start + block.size]
    return Decompressor().raw(frame, block.raw_size, block.sha256)


def test_blocks_come_back_in_order() -> None:
    """Blocks are read back in order, also empty and incompressible ones."""
    assert read(written()) == TEXTS


def test_a_file_is_plain_zstandard() -> None:
    """Any zstandard tool can read a file, because headers are skippable frames."""
    with zstandard.ZstdDecompressor().stream_reader(written(), read_across_frames=True) as reader:
        assert reader.read() == b"".join(TEXTS)


def test_every_flipped_bit_is_noticed_or_harmless() -> None:
    """A flipped bit loses at most its own block, and no wrong data is read."""
    data = written()
    for at_byte in range(len(data)):
        damaged = bytearray(data)
        damaged[at_byte] ^= 1 << at_byte % 8
        sound = [raw for raw in read(bytes(damaged)) if isinstance(raw, bytes)]
        assert len(sound) >= len(TEXTS) - 1
        assert [raw for raw in TEXTS if raw in sound] == sound


def test_every_cut_leaves_what_is_before_it() -> None:
    """A truncated file gives the blocks before the cut."""
    data = written()
    for size in range(0, len(data), 7):
        found = read(data[:size])
        whole = [raw for raw in found if isinstance(raw, bytes)]
        assert whole == TEXTS[: len(whole)]
        assert len(found) - len(whole) <= 1


def test_rubbish_is_no_block() -> None:
    """Random bytes with the start of a block give only bad blocks."""
    rubbish = random.Random(2).randbytes(1000) + written()[:20]
    assert all(isinstance(found, BadBlock) for found in read(rubbish))
    assert list(blocks(b"")) == []


def test_contents_lie_where_the_spans_say() -> None:
    """A pack copied from another's frames has the same contents at its spans."""
    texts = ["one", "zwei — two", "three " * 1000]
    contents = [text.encode() for text in texts]
    (pack,) = encode_contents({sha256_of(text): text.encode() for text in texts})
    copy = Pack()
    for span in pack.spans[1:]:
        copy.add_frame(pack.data[span.start : span.end], span)
    for one, expected in ((pack, contents), (copy, contents[1:])):
        found = [bytes_of(Decompressor(), one.data[s.start : s.end], s) for s in one.spans]
        assert found == expected
    assert pack.size == len(pack.data) == sum(span.stored_bytes for span in pack.spans)


def test_spans_are_read_in_long_runs() -> None:
    """Nearby spans are read together, within the maximum length of a run."""
    spans = [Span(b"", start, 1000, 1) for start in (0, 1000 + HEADER_BYTES, 900_000, 901_000)]
    runs = list(coalesced(reversed(spans)))
    assert runs == [spans[:2], spans[2:]]
    large = [Span(b"", start * 3_000_000, 3_000_000, 1) for start in range(10)]
    assert [len(run) for run in coalesced(large)] == [2, 2, 2, 2, 2]
