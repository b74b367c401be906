"""Packing of an outline into chunks: merge small neighbours, expand or cut large units."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from operator import attrgetter

from processors.chunking.packing.headers import Headers
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.long_lines import cut_line, cut_sentences
from processors.chunking.packing.outline import DEEPEST, SIZES, Block, Outline, Piece, Unit
from processors.chunking.packing.splitter import (
    Bounds,
    merged_units,
    split_without_rests,
    strength,
)
from processors.chunking.strategies import STRUCTURE, packed_by_strategy
from processors.chunking.types import Chunk, CountTokens, Source
from runtime.errors import LimitExceeded

__all__ = ["Packer", "Piece", "pack"]

_NEAR = 0.9


def pack(
    source: Source, lines: Lines, outline: Outline, limit_tokens: int
) -> list[tuple[Chunk, Piece]]:
    """Build chunks of an outlined document, with the pieces they were made of.

    Every chunk has at most ``limit_tokens`` tokens: if the sum over its lines is near the limit,
    the joined text is counted. The strategy of the source may pack it otherwise than ``Packer``.
    """
    if source.strategy == STRUCTURE:
        outline = replace(outline, prose=False)
    packer = Packer(source.title, lines, outline, limit_tokens)
    chosen = packed_by_strategy(source, lines, outline, limit_tokens)
    packed = _verified(
        list(packer.chunks()) if chosen is None else chosen, limit_tokens, lines.count
    )
    if not outline.blocks:
        return list(packed)
    return [(packer.completed(chunk), piece) for chunk, piece in packed]


class Packer:
    """Packs one document."""

    def __init__(
        self, title: str | None, lines: Lines, outline: Outline, limit_tokens: int
    ) -> None:
        self._lines = lines
        self._outline = outline
        self._block_starts = [block.start for block in outline.blocks]
        self._limit = min(limit_tokens, SIZES.largest_tokens)
        self._headers = Headers(title, self._limit, lines.count)
        self._certain_room = self._limit - self._headers.longest_tokens - 1

    def chunks(self) -> Iterator[tuple[Chunk, Piece]]:
        """Yield the chunks in order."""
        for untrimmed in self._level(self._outline.units, ()):
            start, end = self._lines.trim(untrimmed.start, untrimmed.end)
            if start == end:
                continue
            piece = Piece(start, end, untrimmed.owners, untrimmed.inside)
            if self._is_long(piece):
                yield from self._parts_of_line(piece)
            else:
                yield self._chunk(piece), piece

    def completed(self, chunk: Chunk) -> Chunk:
        """Add the lines to its locator that make a readable text of a part of a block."""
        start, end = chunk.start_line - 1, chunk.end_line
        first, last = self._block_at(start), self._block_at(end - 1)
        around = {}
        if first is not None and first.start < start and first.opening:
            around["opening"] = first.opening
        if last is not None and last.closing and (last.unclosed or end < last.end):
            around["closing"] = last.closing
        return chunk._replace(locator=around) if around else chunk

    def _is_long(self, piece: Piece) -> bool:
        cost = self._lines.cost(piece.start, piece.end)
        if cost > self._certain_room and cost > self._room(piece.owners):
            return True
        is_line_of_prose = (
            self._outline.prose
            and piece.end - piece.start == 1
            and self._block_at(piece.start) is None
        )
        return is_line_of_prose and cost > SIZES.merge_tokens

    def _block_at(self, row: int) -> Block | None:
        """Return the block that contains a row, or None."""
        position = bisect_right(self._block_starts, row) - 1
        if position < 0:
            return None
        block = self._outline.blocks[position]
        return block if row < block.end else None

    def _continued(self, row: int, owners: tuple[Unit, ...]) -> str:
        """Label of the block that began above ``row`` and contains it.

        It is empty if there is no such block, or if a unit around it has the same label.
        """
        block = self._block_at(row)
        if block is None or block.start == row:
            return ""
        repeated = any(unit.label.endswith(block.label) for unit in owners)
        return "" if repeated else block.label

    def _room(self, owners: tuple[Unit, ...], *others: str) -> int:
        """Tokens left for text; one is kept for the line end after the header."""
        return self._limit - self._header(owners, *others)[1] - 1

    def _header(self, owners: tuple[Unit, ...], *others: str) -> tuple[str, int]:
        labels = [unit.label for unit in owners if unit.label]
        return self._headers.of((*labels, *filter(None, others)))

    def _level(self, units: Sequence[Unit], owners: tuple[Unit, ...]) -> Iterator[Piece]:
        """Yield pieces of sibling units: runs of units that fit are merged, the others opened."""
        # any unit may come to begin a chunk, so the longest lead must have room
        room = self._room(owners, max((unit.lead for unit in units), key=len, default=""))
        run: list[Unit] = []
        if self._outline.fewest_lines > 1:
            units = self._joined(units, room)
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
        bounds = Bounds(min(SIZES.merge_tokens, room), room, SIZES.minimum_tokens)
        for units in merged_units(self._lines, run, bounds):
            named = tuple(unit for unit in units if unit.name)
            yield Piece(units[0].start, units[-1].end, owners, named)

    def _expanded(self, unit: Unit, owners: tuple[Unit, ...]) -> Iterator[Piece]:
        inner = (*owners, unit) if unit.name else owners
        if unit.expand is not None and len(owners) < DEEPEST:
            yield from self._level(unit.expand(), inner)
        else:
            yield from self._cut(unit, inner)

    def _joined(self, units: Sequence[Unit], room: int) -> Sequence[Unit]:
        """Join units without a name and of few lines to the neighbour that they fit into.

        If they fit into none, they are joined all the same: then the neighbour is cut.
        """
        joined: list[Unit] = []
        pending: Unit | None = None
        for position, sibling in enumerate(units):
            unit = sibling if pending is None else _union(pending, sibling)
            pending = None
            if not self._is_fragment(unit):
                joined.append(unit)
                continue
            is_last = position + 1 == len(units)
            fits_above = bool(joined) and self._lines.cost(joined[-1].start, unit.end) <= room
            if fits_above or (joined and is_last):
                joined[-1] = _union(joined[-1], unit)
            elif not is_last:
                pending = unit
            else:
                joined.append(unit)
        return joined

    def _is_fragment(self, unit: Unit) -> bool:
        if unit.name or unit.end - unit.start > 3 * self._outline.fewest_lines:
            return False
        return (
            0 < self._lines.blank[unit.start : unit.end].count(False) < self._outline.fewest_lines
        )

    def _cut(self, unit: Unit, owners: tuple[Unit, ...]) -> Iterator[Piece]:
        if self._lines.trim(unit.start, unit.end)[0] >= unit.end:
            return  # a long run of blank lines
        room = self._room(owners)
        fitting, large = self._blocks_in(unit, room)
        # parts of the large blocks have longer headers
        room = min((self._room(owners, block.label) for block in large), default=room)
        sums = self._lines.cost_sums
        kept = {row for block in fitting for row in range(block.start + 1, block.end)}
        for block in large:
            kept.update(self._first_and_last(block, room))
        edges = self._edges(unit, kept)
        rows = edges[:-1]
        strengths = list(map(strength, self._outline.ranks(rows), self._lines.digests(rows)))
        is_plain_text = self._outline.prose and not owners
        enough = min(SIZES.merge_tokens, room) if is_plain_text else room
        bounds = Bounds(enough, room, SIZES.minimum_tokens, self._outline.fewest_lines)
        edge_sums = [sums[row] for row in edges]
        for first, last in split_without_rests(edge_sums, strengths, bounds):
            yield Piece(edges[first], edges[last], owners)

    def _blocks_in(self, unit: Unit, room: int) -> tuple[list[Block], list[Block]]:
        """Return the blocks in a unit that fit, and those that do not."""
        low = bisect_right(self._outline.blocks, unit.start, key=attrgetter("end"))
        high = bisect_left(self._block_starts, unit.end)
        fitting: list[Block] = []
        large: list[Block] = []
        for block in self._outline.blocks[low:high]:
            fits = self._lines.cost(block.start, block.end) <= room
            (fitting if fits else large).append(block)
        return fitting, large

    def _edges(self, unit: Unit, kept: Set[int]) -> Sequence[int]:
        """Rows before which a unit may be cut, and its end.

        A row of ``kept`` stays with the row above. Where a run of few lines is to be avoided, blank
        rows do not count.
        """
        if not kept and self._outline.fewest_lines == 1:
            return range(unit.start, unit.end + 1)
        skips_blank = self._outline.fewest_lines > 1
        blank = self._lines.blank
        start = self._lines.trim(unit.start, unit.end)[0] if skips_blank else unit.start
        inner = [
            row
            for row in range(start + 1, unit.end)
            if row not in kept and not (skips_blank and blank[row])
        ]
        return [start, *inner, unit.end]

    def _first_and_last(self, block: Block, room: int) -> Iterator[int]:
        """Rows of a block that stay with the row above: its head and first row, and its last."""
        head = range(block.start + 1, min(block.start + block.head + 1, block.end))
        if self._lines.cost(block.start, head.stop) <= room:
            yield from head
        last = block.end - 1
        if block.closing and not block.unclosed and self._lines.cost(last - 1, block.end) <= room:
            yield last

    def _chunk(self, piece: Piece) -> Chunk:
        continued = tuple(unit for unit in piece.owners if unit.start < piece.start)
        header, header_tokens = self._header(
            continued, piece.lead if continued else "", self._continued(piece.start, continued)
        )
        return Chunk(
            start_line=piece.start + 1,
            end_line=piece.end,
            content=self._lines.text(piece.start, piece.end),
            header=header,
            tokens=header_tokens + self._lines.tokens(piece.start, piece.end),
        )

    def _parts_of_line(self, piece: Piece) -> Iterator[tuple[Chunk, Piece]]:
        whole = self._chunk(piece)
        label = self._continued(piece.start, piece.owners)
        header, header_tokens = self._header(piece.owners, label)
        room = self._room(piece.owners, label)
        if self._outline.prose and self._block_at(piece.start) is None:
            bounds = Bounds(min(SIZES.merge_tokens, room), room, SIZES.minimum_tokens)
            texts = cut_sentences(whole.content, bounds, self._lines.count)
        else:
            texts = cut_line(whole.content, room, self._lines.count)
        parts = [part for part in texts if part.strip()]
        for part, tokens in zip(parts, self._lines.count(parts), strict=True):
            yield whole._replace(content=part, tokens=header_tokens + tokens), piece
            whole = whole._replace(header=header)  # the other parts do not begin with the unit


def _union(unit: Unit, following: Unit) -> Unit:
    """Unit of the rows of two neighbours, with the name of the one that has a name."""
    named, other = (unit, following) if unit.name else (following, unit)
    expand = named.expand

    def expanded() -> Sequence[Unit]:
        inner = expand() if expand is not None else (named,)
        return (*inner, other) if named is unit else (other, *inner)

    return named._replace(
        start=unit.start,
        end=following.end,
        expand=None if expand is None else expanded,
    )


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
            yield chunk._replace(tokens=tokens), piece
        else:
            yield from _verified([(half, piece) for half in _halved(chunk)], limit_tokens, count)


def _halved(chunk: Chunk) -> Iterator[Chunk]:
    """Halve a chunk's text; both chunks keep the tokens of the whole as upper bound."""
    lines = chunk.content.split("\n")
    middle = len(lines) // 2
    if middle:
        row = chunk.start_line + middle
        yield chunk._replace(end_line=row - 1, content="\n".join(lines[:middle]))
        yield chunk._replace(start_line=row, content="\n".join(lines[middle:]))
    elif len(chunk.content) > 1:
        half = len(chunk.content) // 2
        yield chunk._replace(content=chunk.content[:half])
        yield chunk._replace(content=chunk.content[half:])
    else:
        raise LimitExceeded(
            "one character with its header exceeds the model's limit of tokens",
            "use a model with a higher limit",
        )
