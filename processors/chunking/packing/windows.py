"""Packing without regard to structure: windows of a fixed size, or the whole document at once."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from processors.chunking.packing.headers import Headers
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.long_lines import cut_line
from processors.chunking.packing.outline import DEEPEST, Outline, Piece, Unit
from processors.chunking.types import Chunk

__all__ = ["pack_whole", "pack_windows"]

_WORD = re.compile(r"\s*\S+\s*")
_SMALLEST_WINDOW = 8
"""Tokens that a window may have at least, however long its header and overlap are."""


@dataclass(frozen=True, slots=True)
class _Word:
    """Characters ``start..end`` of a row, with their tokens."""

    row: int
    start: int
    end: int
    tokens: int

    @property
    def position(self) -> tuple[int, int]:
        """Row and first character."""
        return self.row, self.start


def pack_whole(
    title: str | None, lines: Lines, outline: Outline, limit_tokens: int
) -> list[tuple[Chunk, Piece]] | None:
    """Make the document one chunk. Returns None if it does not fit into ``limit_tokens``."""
    start, end = lines.trim(0, len(lines))
    if start == end:
        return []
    text = lines.text(start, end)
    header, header_tokens = Headers(title, limit_tokens, lines.count).of(())
    tokens = lines.count([text])[0] + header_tokens + 1
    if max(tokens, lines.cost(start, end)) > limit_tokens:
        return None
    named = tuple(unit for unit in outline.units if unit.name)
    piece = Piece(start, end, (), named if len(named) == 1 else ())
    return [(Chunk(start + 1, end, text, header, tokens), piece)]


def pack_windows(
    title: str | None,
    lines: Lines,
    outline: Outline,
    limit_tokens: int,
    size_tokens: int,
    overlap_tokens: int,
) -> list[tuple[Chunk, Piece]]:
    """Cut into windows of whole words, at most ``size_tokens`` each.

    The last ``overlap_tokens`` before a window are embedded with it, at the end of its header. Its
    content begins after them, so that the chunks of a document never repeat text.
    """
    headers = Headers(title, limit_tokens, lines.count)
    owners = _Owners(outline.units)
    packed: list[tuple[Chunk, Piece]] = []
    words = _words(lines, min(size_tokens, limit_tokens))
    first = 0
    while first < len(words):
        path = owners.at(words[first].row)
        began = tuple(unit for unit in path if (unit.start, 0) < words[first].position)
        header, header_tokens = headers.of(tuple(unit.label for unit in began if unit.label))
        room = limit_tokens - header_tokens - 2
        before = _before(words, first, min(overlap_tokens, room - _SMALLEST_WINDOW))
        overlap_used = sum(word.tokens for word in words[before:first])
        last = _after(words, first, max(1, min(size_tokens, room - overlap_used)))
        text = _text(lines, words[first:last])
        overlap = " ".join(_text(lines, words[before:first]).split()) if before < first else ""
        tokens = header_tokens + sum(word.tokens for word in words[before:last])
        start, end = words[first].row, words[last - 1].row + 1
        whole_header = "\n".join(part for part in (header, overlap) if part)
        packed.append((Chunk(start + 1, end, text, whole_header, tokens), Piece(start, end, path)))
        first = last
    return packed


def _words(lines: Lines, longest_tokens: int) -> list[_Word]:
    """Words of a text with the blanks around them; one over the limit is cut."""
    spans = [
        (row, match.start(), match.end())
        for row, line in enumerate(lines.texts)
        if not lines.blank[row]
        for match in _WORD.finditer(line)
    ]
    tokens = lines.count([lines.texts[row][start:end] for row, start, end in spans])
    words: list[_Word] = []
    for (row, start, end), count in zip(spans, tokens, strict=True):
        if count <= longest_tokens:
            words.append(_Word(row, start, end, count))
            continue
        parts = cut_line(lines.texts[row][start:end], longest_tokens, lines.count)
        edges = pairwise(accumulate(map(len, parts), initial=start))
        counts = lines.count(parts)
        words += [
            _Word(row, left, right, part) for (left, right), part in zip(edges, counts, strict=True)
        ]
    return words


def _before(words: Sequence[_Word], first: int, most_tokens: int) -> int:
    """Index of the first of the words before ``first`` that have ``most_tokens`` together."""
    tokens, index = 0, first
    while index > 0 and tokens + words[index - 1].tokens <= most_tokens:
        index -= 1
        tokens += words[index].tokens
    return index


def _after(words: Sequence[_Word], first: int, most_tokens: int) -> int:
    """Index after the last of the words from ``first`` that fit; there is one at least."""
    tokens, index = words[first].tokens, first + 1
    while index < len(words) and tokens + words[index].tokens <= most_tokens:
        tokens += words[index].tokens
        index += 1
    return index


def _text(lines: Lines, words: Sequence[_Word]) -> str:
    """Source text of some words that follow each other."""
    head, tail = words[0], words[-1]
    rows = lines.texts[head.row : tail.row + 1]
    rows[-1] = rows[-1][: tail.end]
    rows[0] = rows[0][head.start :]
    return "\n".join(rows)


class _Owners:
    """Named units around each row, outermost first."""

    def __init__(self, units: Sequence[Unit]) -> None:
        entries = sorted(_entries(units, ()), key=lambda entry: entry[0])
        self._starts = [start for start, _ in entries]
        self._paths = [path for _, path in entries]

    def at(self, row: int) -> tuple[Unit, ...]:
        """Path of the unit that contains ``row``."""
        index = bisect_right(self._starts, row) - 1
        return self._paths[index] if index >= 0 else ()


def _entries(
    units: Sequence[Unit], owners: tuple[Unit, ...]
) -> Iterator[tuple[int, tuple[Unit, ...]]]:
    for unit in units:
        path = (*owners, unit) if unit.name else owners
        yield unit.start, path
        if unit.expand is not None and len(owners) < DEEPEST:
            yield from _entries(unit.expand(), path)
