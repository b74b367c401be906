"""Chunker of Markdown: cuts by heading; tables, lists and fenced code only if they do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from processors.chunking.chunkers.blocks import blocks_of
from processors.chunking.chunkers.prose import Heading, Ranks, chunk_sections, paragraph_rank
from processors.chunking.packing.lines import Lines
from processors.chunking.packing.outline import Block
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["Markdown", "chunk_markdown"]

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*\r?$")
_UNDERLINES = {"=", "-"}
_UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*\r?$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_NOT_A_PARAGRAPH = re.compile(r" {4}|\t| {0,3}([-*+>|]|\d{1,9}[.)])(\s|$)| {0,3}[>|]")
_FRONT_MATTER = {"---": ("---", "..."), "+++": ("+++",)}


def chunk_markdown(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut into sections by ATX and setext headings (CommonMark 0.31 §4.2-4.5)."""
    lines = Lines(source.text, count)
    markdown = Markdown(source, lines)
    headings = list(markdown.headings())
    return chunk_sections(source, lines, headings, markdown.rank, limit_tokens, markdown.blocks)


class Markdown:
    """Lines of Markdown. ``verbatim`` marks the rows inside front matter or a fence."""

    def __init__(self, source: Source, lines: Lines) -> None:
        self._lines = lines
        first = _front_matter_end(lines.texts)
        self.blocks: Sequence[Block] = blocks_of(source, lines, first, markdown=True)
        if source.version == 1:
            self.verbatim = _verbatim_rows(lines, first)
        else:
            self.verbatim = _rows_inside(len(lines), first, self.blocks)

    def headings(self) -> Iterator[Heading]:
        """ATX and setext headings in order."""
        return _headings(self._lines, self.verbatim)

    def rank(self, row: int) -> int:
        """Rank of a row; rows inside a table or a fence are cut only as a last resort."""
        return _rank(self._lines, self.verbatim, row)


def _rows_inside(count: int, front_matter_end: int, blocks: Sequence[Block]) -> list[bool]:
    """Mark each of ``count`` rows that is inside front matter or a fence, except for its first."""
    inside = [False] * count
    ranges = [(0, front_matter_end), *((b.start, b.end) for b in blocks if b.closing)]
    for start, end in ranges:
        inside[start + 1 : end] = [True] * max(end - start - 1, 0)
    return inside


def _verbatim_rows(lines: Lines, row: int) -> list[bool]:
    """Mark the rows as version 1 does: it knows no fences that are indented by a tab or more."""
    inside = _rows_inside(len(lines), row, ())
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
    followers = [*lines.texts[1:], ""]
    for row, (text, following) in enumerate(zip(lines.texts, followers, strict=True)):
        if verbatim[row]:
            continue
        atx = _ATX.match(text) if "#" in text else None
        if atx is not None:
            yield Heading(row, len(atx[1]), atx[2] or "")
        elif following.lstrip()[:1] in _UNDERLINES and _is_underlined(lines, verbatim, row):
            underline = lines.texts[row + 1].lstrip()
            yield Heading(row, 1 if underline[0] == "=" else 2, text)


def _is_underlined(lines: Lines, verbatim: Sequence[bool], row: int) -> bool:
    """True for a setext heading: a paragraph of one line, underlined."""
    if row + 1 == len(lines) or verbatim[row + 1] or lines.blank[row]:
        return False
    if not _UNDERLINE.match(lines.texts[row + 1]) or _NOT_A_PARAGRAPH.match(lines.texts[row]):
        return False
    return row == 0 or lines.blank[row - 1] or verbatim[row - 1]


def _is_fence(text: str) -> bool:
    return ("```" in text or "~~~" in text) and _FENCE.match(text) is not None


def _rank(lines: Lines, verbatim: Sequence[bool], row: int) -> int:
    if verbatim[row]:
        return Ranks.LINE if lines.blanks_before(row, 1) else Ranks.NEVER
    text = lines.texts[row]
    if "|" in text and text.lstrip().startswith("|") and not lines.blanks_before(row, 1):
        return Ranks.NEVER
    if _is_fence(text) and not lines.blanks_before(row, 1):
        return Ranks.LINE
    return paragraph_rank(lines, row)
