"""Chunker of reStructuredText: cuts by heading. Also finds its headings and blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate

from processors.chunking.chunkers.prose import Heading, chunk_sections, paragraph_rank
from processors.chunking.packing.lines import Lines
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["CodeBlock", "chunk_rst", "rst_blocks", "rst_headings"]

_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1+\s*$")
_SHORTEST_ADORNMENT = 3
_DIRECTIVE = re.compile(r"(\s*)\.\. (?:code-block|sourcecode|code)::\s*+([\w+#.-]*+)\s*+$")
_OPTION = re.compile(r"\s+:[\w-]+:")
_SIGN_OF_CODE = re.compile(r"[=(){}\[\];<>$|&\\]|^\s*(?:#|//|--|@|import |from |def |class )")
_SHARE_WITH_SIGNS = 1 / 3


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """Rows of code ``start`` to ``end``, from 0, half open; its marks are not among them.

    It begins with its marks at ``begin``, and the rows from ``behind`` follow it. ``language`` is
    empty if the marks do not name one.
    """

    begin: int
    start: int
    end: int
    behind: int
    language: str = ""


def chunk_rst(source: Source, limit_tokens: int, count: CountTokens) -> list[Chunk]:
    """Cut into sections; the order in which adornments first appear defines heading levels."""
    lines = Lines(source.text, count)
    headings = list(rst_headings(lines))
    return chunk_sections(source, lines, headings, partial(paragraph_rank, lines), limit_tokens)


def rst_headings(lines: Lines) -> Iterator[Heading]:
    """Headings in order; the order in which adornments first appear defines their levels."""
    levels: dict[tuple[str, bool], int] = {}
    for row in range(len(lines) - 1):
        if not _is_title(lines, row):
            continue
        mark = lines.texts[row + 1][0]
        overlined = row > 0 and _is_adornment(lines, row - 1, mark)
        level = levels.setdefault((mark, overlined), len(levels) + 1)
        yield Heading(row - overlined, level, lines.texts[row].strip())


def _is_title(lines: Lines, row: int) -> bool:
    """True for text over an adornment about as long, after a blank line or an overline."""
    title, underline = lines.texts[row].rstrip(), lines.texts[row + 1].rstrip()
    if lines.blank[row] or _ADORNMENT.match(title) or not _is_adornment(lines, row + 1):
        return False
    if len(underline) < min(len(title), _SHORTEST_ADORNMENT + 1):
        return False
    if row == 0 or lines.blank[row - 1]:
        return not title[0].isspace()
    return _is_adornment(lines, row - 1, underline[0])


def _is_adornment(lines: Lines, row: int, mark: str = "") -> bool:
    text = lines.texts[row].rstrip()
    if len(text) < _SHORTEST_ADORNMENT or not _ADORNMENT.match(text):
        return False
    return text.startswith(mark)


def rst_blocks(lines: Lines) -> Iterator[CodeBlock]:
    """Directives of code, and literal blocks (after ``::``) that hold code, in order."""
    blocks = _Blocks(lines)
    row = 0
    while row < len(lines):
        block = blocks.at(row)
        if block is None:
            row += 1
        else:
            yield block
            row = block.behind


class _Blocks:
    """Blocks of a text. Each line is read once, however often the blocks around it are refused."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines

    def at(self, row: int) -> CodeBlock | None:
        """Block that the line of a row announces. Returns None if it announces none."""
        lines = self._lines
        line = lines.texts[row].rstrip()
        directive = _DIRECTIVE.match(line)
        is_literal = line.endswith("::") and not line.lstrip().startswith("..")
        if directive is None and not is_literal:
            return None
        start = row + 1
        while directive is not None and start < len(lines) and _OPTION.match(lines.texts[start]):
            start += 1
        start, end = lines.trim(start, max(start, self._ends[row]))
        if start == end:
            return None
        if directive is None and not self._holds_code(start, end):
            return None
        begin = row + 1 if directive is None else row
        return CodeBlock(begin, start, end, end, directive[2].lower() if directive else "")

    @cached_property
    def _ends(self) -> Sequence[int]:
        """Row behind the lines below each row that are blank or indented by more than it."""
        ends = [len(self._lines)] * len(self._lines)
        outer: list[tuple[int, int]] = []  # indents and rows, the deepest last
        for row in range(len(self._lines) - 1, -1, -1):
            if self._lines.blank[row]:
                continue
            indent = _indent(self._lines.texts[row])
            while outer and outer[-1][0] > indent:
                outer.pop()
            ends[row] = outer[-1][1] if outer else len(self._lines)
            outer.append((indent, row))
        return ends

    def _holds_code(self, start: int, end: int) -> bool:
        signs, filled = (
            self._signs[end] - self._signs[start],
            self._filled[end] - self._filled[start],
        )
        return signs >= _SHARE_WITH_SIGNS * filled

    @cached_property
    def _signs(self) -> Sequence[int]:
        """Number of lines with a sign of code before each row."""
        signs = (_SIGN_OF_CODE.search(text) is not None for text in self._lines.texts)
        return [*accumulate(signs, initial=0)]

    @cached_property
    def _filled(self) -> Sequence[int]:
        """Number of lines that are not blank before each row."""
        return [*accumulate((not blank for blank in self._lines.blank), initial=0)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
