"""Files of events: JSON lines, one for each change, in blocks of some hundred."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from events.change_log import LoggedChange
from events.models import DocumentChanged, first_problem
from store.archive.blocks import BadBlock, Block, Compressor, Decompressor

__all__ = ["EncodedEvents", "decode_block", "encode_events"]

BLOCK_RAW_BYTES = 128 * 2**10
"""Damage costs one block; larger ones compress little better."""

SEGMENT_BYTES = 8 * 2**20


class _Line(BaseModel):
    partition: int
    position: int
    event: DocumentChanged


@dataclass(frozen=True, slots=True)
class EncodedEvents:
    """A file of events, ready to be written."""

    data: bytes
    raw_bytes: int
    entries: int
    first_position: int
    last_position: int


def encode_events(changes: Iterable[LoggedChange]) -> Iterator[EncodedEvents]:
    """Files for claimed changes; each but the last is of about ``SEGMENT_BYTES``."""
    compressor = Compressor()
    parts: list[bytes] = []
    held: list[LoggedChange] = []
    raw_bytes = 0
    for lines, block in _blocks(changes):
        parts.append(compressor.block(lines, hashlib.sha256(lines).digest()))
        held += block
        raw_bytes += len(lines)
        if sum(map(len, parts)) >= SEGMENT_BYTES:
            yield _encoded(parts, held, raw_bytes)
            parts, held, raw_bytes = [], [], 0
    if held:
        yield _encoded(parts, held, raw_bytes)


def _blocks(changes: Iterable[LoggedChange]) -> Iterator[tuple[bytes, list[LoggedChange]]]:
    lines: list[bytes] = []
    held: list[LoggedChange] = []
    size = 0
    for change in changes:
        line = b'{"partition":%d,"position":%d,"event":%b}\n' % (
            change.partition,
            change.position,
            change.event.to_bytes(),
        )
        lines.append(line)
        held.append(change)
        size += len(line)
        if size >= BLOCK_RAW_BYTES:
            yield b"".join(lines), held
            lines, held, size = [], [], 0
    if held:
        yield b"".join(lines), held


def _encoded(parts: list[bytes], changes: list[LoggedChange], raw_bytes: int) -> EncodedEvents:
    positions = [change.position for change in changes]
    return EncodedEvents(b"".join(parts), raw_bytes, len(changes), min(positions), max(positions))


def decode_block(data: bytes, block: Block) -> list[LoggedChange]:
    """The changes of one block of a file.

    Raises:
        BadBlock: it isn't what was written.
    """
    frame = data[block.start : block.start + block.size]
    lines = Decompressor().raw(frame, block.raw_size, block.sha256)
    try:
        return [_change(line) for line in lines.splitlines()]
    except ValidationError as error:
        raise BadBlock(f"it holds what is no event ({first_problem(error)})") from None


def _change(line: bytes) -> LoggedChange:
    parsed = _Line.model_validate_json(line)
    return LoggedChange(parsed.partition, parsed.position, parsed.event)
