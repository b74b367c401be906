"""Chunker of Markdown: cuts by heading; tables, lists and fenced code only if they do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from processors.chunking.chunkers.prose import Heading, Ranks, chunk_sections, paragraph_rank
from processors.chunking.packing.lines import Lines
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["Markdown", "chunk_markdown"]

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\r?$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\r?$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_NOT_A_PARAGRAPH = re.compile(r" {4}|\t| {0,3}([-*+>|]|\d{1,9}[.)])(\s|$)| {0,3}[>|]")
_FRONT_MATTER = {"---": ("---", "..."), "+++": ("+++",)}


def chunk_markdown(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut into sections by ATX and setext headings (CommonMark 0.31 §4.2-4.5)."""
    lines = Lines(source.text, count)
    markdown = Markdown(lines)
    headings = list(_headings(lines, markdown.verbatim))
    return chunk_sections(source, lines, headings, markdown.rank, limit_tokens)


class Markdown:
    """Lines of Markdown. ``verbatim`` marks the rows inside front matter or a fence."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.verbatim = _verbatim_rows(lines)

    def rank(self, row: int) -> int:
        """Rank of a row; rows inside a table or a fence are cut only as a last resort."""
        return _rank(self._lines, self.verbatim, row)


def _verbatim_rows(lines: Lines) -> list[bool]:
    """Mark each row that is inside front matter or a fence, except for its first row."""
    inside = [False] * len(lines)
    row = _front_matter_end(lines.texts)
    inside[1:row] = [True] * max(row - 1, 0)
    while row < len(lines):
        end = _fence_end(lines.texts, row)
        inside[row + 1 : end] = [True] * (end - row - 1)
        row = end
    return inside


def _front_matter_end(texts: Sequence[str]) -> int:
    """Number of rows of front matter at the top of the text, 0 without front matter."""
    closers = _FRONT_MATTER.get(texts[0].removeprefix("\ufeff").rstrip(), ())
    closing = (row for row in range(1, len(texts)) if texts[row].rstrip() in closers)
    return next(closing, -1) + 1 if closers else 0


def _fence_end(texts: Sequence[str], row: int) -> int:
    """Row after the fenced block that starts at ``row``, or the next row if it starts none."""
    opening = _FENCE.match(texts[row])
    if opening is None:
        return row + 1
    mark = opening[1]
    for end in range(row + 1, len(texts)):
        text = texts[end].strip()
        if text.startswith(mark) and not text.strip(mark[0]):
            return end + 1
    return len(texts)


def _headings(lines: Lines, verbatim: Sequence[bool]) -> Iterator[Heading]:
    for row, text in enumerate(lines.texts):
        if verbatim[row]:
            continue
        atx = _ATX.match(text)
        if atx is not None:
            yield Heading(row, len(atx[1]), atx[2] or "")
        elif _is_underlined(lines, verbatim, row):
            underline = lines.texts[row + 1].lstrip()
            yield Heading(row, 1 if underline[0] == "=" else 2, text)


def _is_underlined(lines: Lines, verbatim: Sequence[bool], row: int) -> bool:
    """True for a setext heading: a paragraph of one line, underlined."""
    if row + 1 == len(lines) or verbatim[row + 1] or lines.blank[row]:
        return False
    if not _UNDERLINE.match(lines.texts[row + 1]) or _NOT_A_PARAGRAPH.match(lines.texts[row]):
        return False
    return row == 0 or lines.blank[row - 1] or verbatim[row - 1]


def _rank(lines: Lines, verbatim: Sequence[bool], row: int) -> int:
    if verbatim[row]:
        return Ranks.LINE if lines.blanks_before(row, 1) else Ranks.NEVER
    if lines.texts[row].lstrip().startswith("|") and not lines.blanks_before(row, 1):
        return Ranks.NEVER
    if _FENCE.match(lines.texts[row]) and not lines.blanks_before(row, 1):
        return Ranks.LINE
    return paragraph_rank(lines, row)
