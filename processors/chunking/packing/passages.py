"""Packing of an outline into passages: runs of sentences, which may begin and end within a line.

Units of up to ``merge_tokens`` are merged with their neighbours as in ``packer``. A larger unit is
opened; what has no units inside is split between paragraphs, and a paragraph that is still too
large between its sentences. Both splits are at the strongest boundary, see ``splitter``.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import attrgetter
from zlib import crc32

from processors.chunking.packing.headers import Headers
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.long_lines import cut_line
from processors.chunking.packing.outline import DEEPEST, SIZES, Block, Outline, Piece, Unit
from processors.chunking.packing.sentences import sentence_spans
from processors.chunking.packing.splitter import Bounds, merged_units, split, strength
from processors.chunking.types import Chunk, CountTokens

__all__ = ["PARAGRAPH", "SENTENCE", "Ties", "pack_passages", "sentence_digests"]

NEVER = 0
"""Rank of a row inside a table or a block of code, see ``prose.Ranks``."""

SENTENCE = 2
"""Rank of a sentence that begins within a line, see ``prose.Ranks``."""

PARAGRAPH = 3
"""Lowest rank of a row that begins a paragraph, see ``prose.Ranks``."""

_UNLIMITED = sys.maxsize

Ties = Callable[[Sequence[str]], Sequence[int]]
"""Strengths of the boundaries before sentences, 32 bits each, which decide among equal ranks."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of a row, a row, or a whole fence or table.

    It begins at character ``start`` of ``row`` and ends at character ``end`` of ``last``. ``rank``
    is that of a cut before it.
    """

    row: int
    start: int
    last: int
    end: int
    cost: int
    rank: int


@dataclass(frozen=True, slots=True)
class _Passage:
    """Text from a character of the first row up to one of the last row, which is included."""

    first: int
    start: int
    last: int
    end: int
    owners: tuple[Unit, ...]
    inside: tuple[Unit, ...] = ()


def sentence_digests(sentences: Sequence[str]) -> list[int]:
    """Hash of each sentence, so that an edit changes no other boundary."""
    return [crc32(sentence.encode("utf-8", "replace")) for sentence in sentences]


def pack_passages(
    title: str | None, lines: Lines, outline: Outline, limit_tokens: int, ties: Ties
) -> Iterator[tuple[Chunk, Piece]]:
    """Yield chunks of an outlined document in order, with the pieces they were made of.

    ``Chunk.tokens`` is the sum over the sentences, so a chunk may exceed ``limit_tokens`` by a
    token or two. ``ties`` is called once for each run of sentences that has to be split.
    """
    yield from _Passages(title, lines, outline, limit_tokens, ties).chunks()


class _Passages:
    """Packs one document."""

    def __init__(
        self, title: str | None, lines: Lines, outline: Outline, limit_tokens: int, ties: Ties
    ) -> None:
        self._lines = lines
        self._outline = outline
        self._limit = min(limit_tokens, SIZES.largest_tokens)
        self._headers = Headers(title, self._limit, lines.count)
        self._ties = ties

    def chunks(self) -> Iterator[tuple[Chunk, Piece]]:
        """Yield the chunks in order."""
        passages = list(self._level(self._outline.units, ()))
        texts = [
            _text(self._lines, passage.first, passage.start, passage.last, passage.end)
            for passage in passages
        ]
        tokens = self._lines.count(texts)
        for passage, text, count in zip(passages, texts, tokens, strict=True):
            if text.strip():  # a part of a very long line may be blank
                yield self._chunk(passage, text, count)

    def _level(self, units: Sequence[Unit], owners: tuple[Unit, ...]) -> Iterator[_Passage]:
        room = self._room(owners, max((unit.lead for unit in units), key=len, default=""))
        enough = min(SIZES.merge_tokens, room)
        run: list[Unit] = []
        for unit in _joined(units):
            is_small = self._lines.cost(unit.start, unit.end) <= enough
            if is_small and not unit.alone:
                run.append(unit)
                continue
            yield from self._merged(run, owners, room)
            run = []
            if is_small:
                yield from self._rows(unit.start, unit.end, owners, (unit,))
            else:
                yield from self._opened(unit, owners)
        yield from self._merged(run, owners, room)

    def _merged(self, run: list[Unit], owners: tuple[Unit, ...], room: int) -> Iterator[_Passage]:
        for units in merged_units(self._lines, run, _bounds(room)):
            named = tuple(unit for unit in units if unit.name)
            yield from self._rows(units[0].start, units[-1].end, owners, named)

    def _opened(self, unit: Unit, owners: tuple[Unit, ...]) -> Iterator[_Passage]:
        inner = (*owners, unit) if unit.name else owners
        if unit.expand is not None and len(owners) < DEEPEST:
            yield from self._level(unit.expand(), inner)
        else:
            yield from self._sentences(unit, inner)

    def _rows(
        self, start: int, end: int, owners: tuple[Unit, ...], inside: tuple[Unit, ...]
    ) -> Iterator[_Passage]:
        """Make the rows of small units a passage."""
        first, last = self._lines.trim(start, end)
        if first < last:
            yield _Passage(first, 0, last - 1, len(self._lines.texts[last - 1]), owners, inside)

    def _sentences(self, unit: Unit, owners: tuple[Unit, ...]) -> Iterator[_Passage]:
        """Split a unit between paragraphs, then each large part of it between sentences."""
        start, end = self._lines.trim(unit.start, unit.end)
        room = self._room(owners, unit.lead)
        blocks = [block for block in self._outline.blocks if start <= block.start < end]
        large = [b for b in blocks if self._lines.cost(b.start, b.end) > room]
        room = min((self._room(owners, unit.lead, b.label) for b in large), default=room)
        sentences = _sentences_of(self._lines, self._outline, start, end, room)
        paragraphs = [
            index
            for index, sentence in enumerate(sentences)
            if index == 0 or sentence.rank >= PARAGRAPH
        ]
        costs = [0, *accumulate(sentence.cost for sentence in sentences)]
        sums = [costs[index] for index in (*paragraphs, len(sentences))]
        first_sentences = [sentences[index] for index in paragraphs]
        digests = self._lines.digests([sentence.row for sentence in first_sentences])
        ranks = [sentence.rank for sentence in first_sentences]
        strengths = list(map(strength, ranks, digests))
        edges = [*paragraphs, len(sentences)]
        # no part is cut for its size alone: the next split cuts it at a better place
        bounds = Bounds(min(SIZES.merge_tokens, room), _UNLIMITED, SIZES.minimum_tokens)
        for first, last in split(sums, strengths, 0, len(paragraphs), bounds):
            if first < last:
                yield from self._parts(sentences[edges[first] : edges[last]], owners, room)

    def _parts(
        self, sentences: Sequence[_Sentence], owners: tuple[Unit, ...], room: int
    ) -> Iterator[_Passage]:
        """Split between sentences; only a run that is too large needs their strengths."""
        bounds = _bounds(room)
        sums = [0, *accumulate(sentence.cost for sentence in sentences)]
        if sums[-1] <= bounds.enough or len(sentences) == 1:
            ties: Sequence[int] = [0] * len(sentences)
        else:
            ties = self._strengths(sentences)
        strengths = [
            strength(sentence.rank, tie) for sentence, tie in zip(sentences, ties, strict=True)
        ]
        for first, last in split(sums, strengths, 0, len(sentences), bounds):
            head, tail = sentences[first], sentences[last - 1]
            yield _Passage(head.row, head.start, tail.last, tail.end, owners)

    def _strengths(self, sentences: Sequence[_Sentence]) -> Sequence[int]:
        texts = [_text(self._lines, s.row, s.start, s.last, s.end).strip() for s in sentences]
        if not any(NEVER < sentence.rank <= SENTENCE for sentence in sentences[1:]):
            return sentence_digests(texts)  # tables, blocks of code and headings only
        return self._ties(texts)

    def _chunk(self, passage: _Passage, text: str, tokens: int) -> tuple[Chunk, Piece]:
        continued = tuple(
            unit for unit in passage.owners if (unit.start, 0) < (passage.first, passage.start)
        )
        piece = Piece(passage.first, passage.last + 1, passage.owners, passage.inside)
        lead = piece.lead if continued and passage.start == 0 else ""
        block = _block_at(self._outline.blocks, passage.first)
        label = block.label if block is not None and block.start < passage.first else ""
        if any(unit.label.endswith(label) for unit in continued):
            label = ""  # it is part of the header already
        header, header_tokens = self._header(continued, lead, label)
        first, last = passage.first + 1, passage.last + 1
        return Chunk(first, last, text, header, header_tokens + tokens), piece

    def _room(self, owners: tuple[Unit, ...], *others: str) -> int:
        """Tokens left for text; one is kept for the line end after the header."""
        return self._limit - self._header(owners, *others)[1] - 1

    def _header(self, owners: tuple[Unit, ...], *others: str) -> tuple[str, int]:
        labels = (*(unit.label for unit in owners), *others)
        return self._headers.of(tuple(label for label in labels if label))


def _bounds(room: int) -> Bounds:
    return Bounds(min(SIZES.merge_tokens, room), room, SIZES.minimum_tokens)


def _joined(units: Sequence[Unit]) -> Iterator[Unit]:
    """Join neighbours that are plain rows, such as the paragraphs of a text without headings."""
    start: int | None = None
    end = 0
    for unit in units:
        if unit.name or unit.label or unit.lead or unit.alone or unit.expand:
            if start is not None:
                yield Unit(start, end)
            start = None
            yield unit
        else:
            start, end = unit.start if start is None else start, unit.end
    if start is not None:
        yield Unit(start, end)


def _text(lines: Lines, first: int, start: int, last: int, end: int) -> str:
    """Source text from a character of a row up to one of the same row, or of a later one."""
    rows = lines.texts[first : last + 1]
    rows[-1] = rows[-1][:end]
    rows[0] = rows[0][start:]
    return "\n".join(rows)


def _block_at(blocks: Sequence[Block], row: int) -> Block | None:
    """Return the fence or table that contains a row, or None."""
    position = bisect_right(blocks, row, key=attrgetter("start")) - 1
    block = blocks[position] if position >= 0 else None
    return block if block is not None and row < block.end else None


def _sentences_of(
    lines: Lines, outline: Outline, start: int, end: int, room: int
) -> list[_Sentence]:
    """Sentences of the rows ``start..end``; each costs ``room`` tokens at most.

    A fence or a table that fits stays whole, and so do the rows of a larger one.
    """
    ranks = outline.ranks(range(start, end))
    sentences: list[_Sentence] = []
    spans: list[tuple[int, int, int, int]] = []
    row = start
    while row < end:
        block = _block_at(outline.blocks, row)
        rank = ranks[row - start]
        if block is not None and block.start == row and block.end <= end:
            cost = lines.cost(row, block.end)
            if cost <= room:
                sentences += _fitting(lines, spans, room)
                spans = []
                _, after = lines.trim(row, block.end)
                length = len(lines.texts[after - 1])
                sentences.append(_Sentence(row, 0, after - 1, length, cost, rank))
                row = block.end
                continue
        if not lines.blank[row]:
            line = lines.texts[row]
            following = ranks[row - start + 1] if row + 1 < end and not lines.blank[row + 1] else -1
            is_prose = (
                block is None
                and rank > NEVER
                and following != NEVER
                and not _is_verbatim(lines, row, rank)
            )
            parts = sentence_spans(line) if is_prose else iter([(0, len(line))])
            spans += [(row, left, right, SENTENCE if left else rank) for left, right in parts]
        row += 1
    return [*sentences, *_fitting(lines, spans, room)]


def _is_verbatim(lines: Lines, row: int, rank: int) -> bool:
    """Return whether a row after a blank line is inside a block of code: prose ranks higher."""
    return rank < SENTENCE and lines.blanks_before(row, 1) > 0


def _fitting(
    lines: Lines, spans: Sequence[tuple[int, int, int, int]], room: int
) -> Iterator[_Sentence]:
    texts = [lines.texts[row][left:right] for row, left, right, _ in spans]
    for (row, left, right, rank), text, cost in zip(
        spans, texts, _costs(texts, lines.count), strict=True
    ):
        if cost <= room:
            yield _Sentence(row, left, row, right, cost, rank)
            continue
        parts = cut_line(text, room, lines.count)
        edges = accumulate(map(len, parts), initial=left)
        costs = _costs(parts, lines.count)
        for (first, last), part_cost in zip(pairwise(edges), costs, strict=True):
            yield _Sentence(row, first, row, last, part_cost, rank if first == left else NEVER)


def _costs(texts: Sequence[str], count: CountTokens) -> list[int]:
    """Tokens of each text, or more if it has few for its length, as ``Lines`` counts."""
    return [
        max(tokens, len(text) // SIZES.characters_per_token)
        for tokens, text in zip(count(texts), texts, strict=True)
    ]
