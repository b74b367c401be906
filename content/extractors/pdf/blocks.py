"""Blocks of a page in content order: lines of text, and tables in place of their words."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from content.extractors.pdf.cells import Table, TableRow
from content.extractors.pdf.rows import box_of
from content.extractors.pdf.words import Word, joined_text, joined_word
from content.rendition import Box

__all__ = ["Block", "PageText", "Position", "TextLine", "TextTable", "blocks_of", "body_size"]

_TOUCHING = 0.1  # of the size of the type
_BESIDE = 0.8  # of the size of the type: a wider gap divides columns
_OVERLAPPING = 0.3  # of the height of the lower word
_HYPHENS = ("-", "\u2010", "\u2011")


@dataclass(frozen=True, slots=True)
class TextLine:
    """Line of text. ``size`` is that of its font in points, rounded to half a point."""

    text: str
    box: Box
    size: float


@dataclass(frozen=True, slots=True)
class TextTable:
    """Table as lines of Markdown."""

    rows: Sequence[TableRow]


Block = TextLine | TextTable

Position = tuple[int, int]
"""Index of a page, and of a block on it."""


@dataclass(frozen=True, slots=True)
class PageText:
    """Text of a page. ``number`` counts from 1.

    ``box`` is the page, turned clockwise by ``quarters`` as its blocks are. ``notes`` are the
    fields and annotations. ``holds_text`` is false for pages that are images.
    """

    number: int
    box: Box
    quarters: int
    blocks: Sequence[Block]
    notes: Sequence[TextLine] = ()
    holds_text: bool = True


def blocks_of(words: Sequence[Word], tables: Sequence[Table]) -> list[Block]:
    """Return the blocks of a page. A word that a line's end cuts stands whole in the first line."""
    table_of = {word.number: number for number, table in enumerate(tables) for word in table.words}
    blocks: list[Block] = []
    placed: set[int] = set()
    lines: list[Sequence[Word]] = []
    for (number, _), group in groupby(
        words, key=lambda word: (table_of.get(word.number), word.line)
    ):
        if number is None:
            lines.append(list(group))
        elif number not in placed:
            placed.add(number)
            blocks += _lines(lines)
            lines = []
            blocks.append(TextTable(tables[number].rows()))
    blocks += _lines(lines)
    return blocks


def _lines(lines: Sequence[Sequence[Word]]) -> Iterator[TextLine]:
    """Yield lines of text, after joining the words that the ends of lines cut."""
    joined = _joined_scripts(lines)
    texts = [text for text, _ in joined]
    for position in range(len(joined) - 1):
        line, following = joined[position][1], joined[position + 1][1]
        cut = line[-1].cut and line[-1].number + 1 == following[0].number
        if not cut and not _continues(texts[position], texts[position + 1], line, following):
            continue
        rest, _, texts[position + 1] = texts[position + 1].partition(" ")
        head = texts[position]
        texts[position] = joined_word(head if cut else head[:-1], rest)
    for text, (_, line) in zip(texts, joined, strict=True):
        if text:
            yield TextLine(text, box_of(line), _size(line))


def _joined_scripts(lines: Sequence[Sequence[Word]]) -> list[tuple[str, list[Word]]]:
    """Join lines that stand side by side, with their texts: pdfium breaks a line at a superscript.

    A word that nearly touches the one before it is written without a space.
    """
    joined: list[tuple[str, list[Word]]] = []
    for line in lines:
        text = joined_text(line)
        if joined and _stands_beside(joined[-1][1][-1], line[0]):
            before, words = joined[-1]
            touches = line[0].left - words[-1].right <= _TOUCHING * words[-1].measure
            joined[-1] = (f"{before}{'' if touches else ' '}{text}", [*words, *line])
        else:
            joined.append((text, list(line)))
    return joined


def _stands_beside(word: Word, following: Word) -> bool:
    if word.cut or word.aside or following.aside:
        return False
    overlap = min(word.top, following.top) - max(word.bottom, following.bottom)
    gap = following.left - word.right
    size = word.measure
    return (
        overlap > _OVERLAPPING * min(word.size, following.size)
        and -0.3 * size < gap < _BESIDE * size
    )


def _continues(text: str, following: str, line: Sequence[Word], next_line: Sequence[Word]) -> bool:
    """Test whether a hyphen that pdfium keeps cuts a word at the end of a line."""
    return (
        text.endswith(_HYPHENS)
        and text[-2:-1].isalpha()
        and following[:1].islower()
        and _size(line) == _size(next_line)
    )


def _size(line: Sequence[Word]) -> float:
    return round(2 * statistics.median(word.font_size for word in line)) / 2


def body_size(pages: Sequence[PageText]) -> float:
    """Size of the type that most characters of the lines have, in points; 10 without lines."""
    characters: Counter[float] = Counter()
    for page in pages:
        for block in page.blocks:
            if isinstance(block, TextLine):
                characters[block.size] += len(block.text)
    return max(characters, key=lambda size: (characters[size], -size), default=10.0)
