"""Files of events: JSON lines, one per change, in blocks of some hundred lines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field

from pydantic import BaseModel, ValidationError

from events.models import DocumentChanged, first_problem
from events.names import LogPosition
from events.streams.changes import LoggedChange
from store.archive.blocks import BadBlock, Block, Compressor, Decompressor

__all__ = ["EncodedEvents", "Line", "decode_block", "encode_events", "line_of", "raw_lines"]

_POSITION = re.compile(rb'{"partition":\d+,"position":(\d+),')

BLOCK_RAW_BYTES = 128 * 2**10
"""Damage affects a whole block; larger blocks would compress only a little better."""

SEGMENT_BYTES = 8 * 2**20


class _Line(BaseModel):
    partition: int
    position: int
    event: DocumentChanged


@dataclass(frozen=True, slots=True)
class Line:
    """A change as it is stored, newline included."""

    position: int
    raw: bytes


@dataclass(slots=True)
class EncodedEvents:
    """A file of events that is being built or ready to be written."""

    parts: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    raw_bytes: int = 0
    entries: int = 0
    first_position: int = 2**63
    last_position: int = -1

    def add(self, block: bytes, lines: list[Line], raw_bytes: int) -> None:
        """Append a block of lines."""
        self.parts.append(block)
        self.size_bytes += len(block)
        self.raw_bytes += raw_bytes
        self.entries += len(lines)
        positions = [line.position for line in lines]
        self.first_position = min(self.first_position, *positions)
        self.last_position = max(self.last_position, *positions)

    @property
    def data(self) -> bytes:
        """Contents of the file."""
        return b"".join(self.parts)


def line_of(change: LoggedChange) -> Line:
    """The line that stores a claimed change."""
    raw = b'{"partition":%d,"position":%d,"event":%b}\n' % (
        change.partition,
        change.position,
        change.event.to_bytes(),
    )
    return Line(change.position, raw)


def encode_events(lines: Iterable[Line]) -> Iterator[EncodedEvents]:
    """Files of lines, in their order; all but the last have about ``SEGMENT_BYTES``."""
    compressor = Compressor()
    encoded = EncodedEvents()
    for block in _blocks(lines):
        raw = b"".join(line.raw for line in block)
        encoded.add(compressor.block(raw, hashlib.sha256(raw).digest()), block, len(raw))
        if encoded.size_bytes >= SEGMENT_BYTES:
            yield encoded
            encoded = EncodedEvents()
    if encoded.parts:
        yield encoded


def _blocks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    block: list[Line] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line.raw)
        if size >= BLOCK_RAW_BYTES:
            yield block
            block, size = [], 0
    if block:
        yield block


def raw_lines(data: bytes, block: Block | BadBlock) -> list[bytes]:
    """The lines of one block of a file.

    Raises:
        BadBlock: the block differs from what was written.
    """
    if isinstance(block, BadBlock):
        raise block
    frame = data[block.start : block.start + block.size]
    return Decompressor().raw(frame, block.raw_size, block.sha256).splitlines(keepends=True)


def decode_block(
    data: bytes, block: Block | BadBlock, wanted: Container[int] | None = None
) -> tuple[int, list[LoggedChange]]:
    """The number of lines of one block of a file, and its changes.

    ``wanted``: positions of the changes to return; the others are not parsed. None: all of them.

    Raises:
        BadBlock: the block differs from what was written.
    """
    lines = raw_lines(data, block)
    try:
        return len(lines), [
            _change(line) for line in lines if wanted is None or _position(line) in wanted
        ]
    except ValidationError as error:
        raise BadBlock(f"it holds an invalid event ({first_problem(error)})") from None


def _position(line: bytes) -> int:
    """Position of a change, without parsing its line. Returns -1 if the line is not a change."""
    match = _POSITION.match(line)
    return -1 if match is None else int(match[1])


def _change(line: bytes) -> LoggedChange:
    parsed = _Line.model_validate_json(line)
    return LoggedChange(LogPosition(parsed.position, parsed.partition), parsed.event)
