"""Packing of an outline into chunks: merge small neighbours, expand or cut large units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from processors.chunking.packing.headers import Headers
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.long_lines import cut_line
from processors.chunking.packing.outline import SIZES, Outline, Unit
from processors.chunking.packing.splitter import Bounds, split, strength
from processors.chunking.types import Chunk, CountTokens, Source
from runtime.errors import LimitExceeded

__all__ = ["Packer", "Piece", "pack"]

_DEEPEST = 12
_NEAR = 0.9


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that become a chunk, the units around them, and the named units inside."""

    start: int
    end: int
    owners: tuple[Unit, ...]
    inside: tuple[Unit, ...] = ()


def pack(
    source: Source, lines: Lines, outline: Outline, limit_tokens: int
) -> list[tuple[Chunk, Piece]]:
    """Build chunks of an outlined document, with the pieces they were made of.

    Every chunk has at most ``limit_tokens`` tokens: if the sum over its lines is near the limit,
    the joined text is counted.
    """
    packer = Packer(source.title, lines, outline, limit_tokens)
    packed = list(packer.chunks())
    return list(_verified(packed, limit_tokens, lines.count))


class Packer:
    """Packs one document."""

    def __init__(
        self, title: str | None, lines: Lines, outline: Outline, limit_tokens: int
    ) -> None:
        self._lines = lines
        self._outline = outline
        self._limit = min(limit_tokens, SIZES.largest_tokens)
        self._headers = Headers(title, self._limit, lines.count)

    def chunks(self) -> Iterator[tuple[Chunk, Piece]]:
        """Yield the chunks in order."""
        for untrimmed in self._level(self._outline.units, ()):
            start, end = self._lines.trim(untrimmed.start, untrimmed.end)
            if start == end:
                continue
            piece = Piece(start, end, untrimmed.owners, untrimmed.inside)
            if self._lines.cost(start, end) > self._room(piece.owners):
                yield from self._parts_of_line(piece)
            else:
                yield self._chunk(piece), piece

    def _room(self, owners: tuple[Unit, ...], lead: str = "") -> int:
        """Tokens left for text; one is kept for the line end after the header."""
        return self._limit - self._header(owners, lead)[1] - 1

    def _header(self, owners: tuple[Unit, ...], lead: str = "") -> tuple[str, int]:
        labels = (*(unit.label for unit in owners), lead)
        return self._headers.of(tuple(label for label in labels if label))

    def _level(self, units: Sequence[Unit], owners: tuple[Unit, ...]) -> Iterator[Piece]:
        """Yield pieces of sibling units: runs of units that fit are merged, the others opened."""
        # any unit may come to begin a chunk, so the longest lead must have room
        room = self._room(owners, max((unit.lead for unit in units), key=len, default=""))
        run: list[Unit] = []
        for unit in units:
            is_small = self._lines.cost(unit.start, unit.end) <= room
            if is_small and not unit.alone:
                run.append(unit)
                continue
            yield from self._merged(run, owners, room)
            run = []
            if is_small:
                yield Piece(unit.start, unit.end, owners, (unit,))
            else:
                yield from self._expanded(unit, owners)
        yield from self._merged(run, owners, room)

    def _merged(self, run: list[Unit], owners: tuple[Unit, ...], room: int) -> Iterator[Piece]:
        sums = [0, *accumulate(self._lines.cost(unit.start, unit.end) for unit in run)]
        strengths = [
            strength(self._lines.blanks_before(unit.start), self._lines.digest(unit.start))
            for unit in run
        ]
        bounds = Bounds(min(SIZES.merge_tokens, room), room, SIZES.minimum_tokens)
        for first, last in split(sums, strengths, 0, len(run), bounds):
            named = tuple(unit for unit in run[first:last] if unit.name)
            if last > first:
                yield Piece(run[first].start, run[last - 1].end, owners, named)

    def _expanded(self, unit: Unit, owners: tuple[Unit, ...]) -> Iterator[Piece]:
        inner = (*owners, unit) if unit.name else owners
        if unit.expand is not None and len(owners) < _DEEPEST:
            yield from self._level(unit.expand(), inner)
        else:
            yield from self._cut(unit, inner)

    def _cut(self, unit: Unit, owners: tuple[Unit, ...]) -> Iterator[Piece]:
        room = self._room(owners)
        sums = self._lines.cost_sums[unit.start : unit.end + 1]
        strengths = [
            strength(rank, self._lines.digest(row))
            for row, rank in enumerate(self._outline.ranks(unit.start, unit.end), unit.start)
        ]
        bounds = Bounds(room, room, SIZES.minimum_tokens)
        for first, last in split(sums, strengths, 0, len(strengths), bounds):
            yield Piece(unit.start + first, unit.start + last, owners)

    def _chunk(self, piece: Piece) -> Chunk:
        continued = tuple(unit for unit in piece.owners if unit.start < piece.start)
        header, header_tokens = self._header(continued, _lead(piece) if continued else "")
        return Chunk(
            start_line=piece.start + 1,
            end_line=piece.end,
            content=self._lines.text(piece.start, piece.end),
            header=header,
            tokens=header_tokens + self._lines.tokens(piece.start, piece.end),
        )

    def _parts_of_line(self, piece: Piece) -> Iterator[tuple[Chunk, Piece]]:
        whole = self._chunk(piece)
        header, header_tokens = self._header(piece.owners)
        room = self._room(piece.owners)
        parts = [part for part in cut_line(whole.content, room, self._lines.count) if part.strip()]
        for part, tokens in zip(parts, self._lines.count(parts), strict=True):
            yield replace(whole, content=part, tokens=header_tokens + tokens), piece
            whole = replace(whole, header=header)  # the other parts do not begin with the unit


def _lead(piece: Piece) -> str:
    """Lead of the unit that begins with the piece."""
    units = (*piece.owners, *piece.inside)
    return next((unit.lead for unit in units if unit.start == piece.start and unit.lead), "")


def _verified(
    packed: Sequence[tuple[Chunk, Piece]], limit_tokens: int, count: CountTokens
) -> Iterator[tuple[Chunk, Piece]]:
    """Count the joined text of chunks near the limit, and cut those that exceed it."""
    near = [chunk for chunk, _ in packed if chunk.tokens > _NEAR * limit_tokens]
    exact = iter(count([f"{chunk.header}\n{chunk.content}" for chunk in near]))
    for chunk, piece in packed:
        if chunk.tokens <= _NEAR * limit_tokens:
            yield chunk, piece
            continue
        tokens = next(exact)
        if tokens <= limit_tokens:
            yield replace(chunk, tokens=tokens), piece
        else:
            yield from _verified([(half, piece) for half in _halved(chunk)], limit_tokens, count)


def _halved(chunk: Chunk) -> Iterator[Chunk]:
    """Halve a chunk's text; both chunks keep the tokens of the whole as upper bound."""
    lines = chunk.content.split("\n")
    middle = len(lines) // 2
    if middle:
        row = chunk.start_line + middle
        yield replace(chunk, end_line=row - 1, content="\n".join(lines[:middle]))
        yield replace(chunk, start_line=row, content="\n".join(lines[middle:]))
    elif len(chunk.content) > 1:
        half = len(chunk.content) // 2
        yield replace(chunk, content=chunk.content[:half])
        yield replace(chunk, content=chunk.content[half:])
    else:
        raise LimitExceeded(
            "one character with its header exceeds the model's limit of tokens",
            "use a model with a higher limit",
        )
