"""Words of a page in content order, each with its box."""

from __future__ import annotations

import ctypes
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import hypot, isfinite
from typing import Any, NamedTuple

import pypdfium2.raw as pdfium

from content.rendition import Box
from runtime.errors import LimitExceeded

__all__ = [
    "Word",
    "WordsOfPage",
    "cleaned",
    "joined_text",
    "joined_word",
    "read_words",
    "turned",
    "united",
    "upright",
]

_WORD = re.compile(r"[^\s\0]+")
_HYPHEN = re.compile("[\x02\ufffe]")  # pdfium's marks of a hyphen at the end of a line
_CONTROLS = (*range(0x09), *range(0x0E, 0x1C), *range(0x7F, 0x85), *range(0x86, 0xA0))
_DROPPED = dict.fromkeys((*_CONTROLS, 0xAD, 0xFEFF, 0xFFFE, 0xFFFF))
_SYMBOLS = {0xF0B7: "•", 0xF0A7: "▪", 0xF0D8: "➢", 0xF0FC: "✓", 0xF02D: "-"}
"""Characters of the fonts Symbol and Wingdings, which have no character of Unicode."""
_REPLACED = {**_DROPPED, **_SYMBOLS}
_PRESENTATION = re.compile("[\ufb00-\ufdff\ufe70-\ufefc]+")
MOST_CHARACTERS = 300_000  # of one page
_FARTHEST = 100_000.0  # points; the format allows 14,400
_NOWHERE = Box(0.0, 0.0, 0.0, 0.0)
_HIGHEST_WORD = 1.8  # of the height of its first character
_WIDEST_CHARACTER = 1.3  # of its height, on average
_GAP = 0.6  # of the height, between characters of two words
_SMALLEST = 0.05  # points: a box that is thinner has no measure of its font


class Word(NamedTuple):
    """Word, or a part of one that is cut by the end of a line.

    The box is upright: where most of a page's text is turned, the page is turned with it.
    ``number`` is the position in the content of the page, and ``line`` the number of its line.
    ``size`` is the height of its box and ``font_size`` that of its font, in points. The rest of a
    ``cut`` word is the next one. A word that is ``aside`` runs in another direction than most of
    its page.
    """

    number: int
    text: str
    left: float
    bottom: float
    right: float
    top: float
    size: float
    font_size: float
    line: int
    cut: bool = False
    aside: bool = False

    @property
    def middle(self) -> float:
        """Height of its middle."""
        return (self.bottom + self.top) / 2

    @property
    def center(self) -> float:
        """Horizontal position of its middle."""
        return (self.left + self.right) / 2

    @property
    def measure(self) -> float:
        """Size of its type, at least 4 points, as a measure of gaps beside it."""
        return max(self.size, 4.0)


@dataclass(frozen=True, slots=True)
class WordsOfPage:
    """Words of a page, and the quarter turns counterclockwise that most of its text is turned."""

    words: Sequence[Word]
    quarters: int = 0


class _Part(NamedTuple):
    text: str
    box: Box
    font_size: float
    quarters: int
    line: int
    cut: bool


def read_words(handle: Any) -> WordsOfPage:
    """Read the words of one of pdfium's text pages.

    Raises:
        LimitExceeded: the page has more than 300,000 characters.
    """
    count = pdfium.FPDFText_CountChars(handle)
    if count <= 0:
        return WordsOfPage(())
    if count > MOST_CHARACTERS:
        raise LimitExceeded(
            f"a page of the PDF has {count:,} characters, over the limit of {MOST_CHARACTERS:,}",
            "publish its text instead",
        )
    parts = list(_Reader(handle, count).parts())
    turns: Counter[int] = Counter()
    for part in parts:
        turns[part.quarters] += len(part.text)
    quarters = min(turns, key=lambda turn: (-turns[turn], turn), default=0)
    if len(turns) < 2 and not quarters:
        return WordsOfPage([_word(number, part) for number, part in enumerate(parts)])
    words = [_turned_word(number, part, quarters) for number, part in enumerate(parts)]
    return WordsOfPage(words, quarters)


def _word(number: int, part: _Part) -> Word:
    text, box, font_size, _, line, cut = part
    left, bottom, right, top = box
    size = round(top - bottom, 1)
    return Word(number, text, left, bottom, right, top, size, font_size or size, line, cut)


def _turned_word(number: int, part: _Part, quarters: int) -> Word:
    box = turned(part.box, quarters)
    aside = part.quarters != quarters
    # type that runs up or down a page is as high as its box is wide
    sideways = aside and (part.quarters - quarters) % 2 == 1
    size = box.right - box.left if sideways else box.top - box.bottom
    size = round(size, 1)
    return Word(number, part.text, *box, size, part.font_size or size, part.line, part.cut, aside)


def turned(box: Box, quarters: int) -> Box:
    """Return the box after so many quarter turns clockwise around the origin."""
    left, bottom, right, top = box
    match quarters % 4:
        case 1:
            return Box(bottom, -right, top, -left)
        case 2:
            return Box(-right, -top, -left, -bottom)
        case 3:
            return Box(-top, left, -bottom, right)
        case _:
            return box


def joined_text(words: Sequence[Word]) -> str:
    """Join words with spaces, and a cut word with its rest."""
    text = ""
    for position, word in enumerate(words):
        previous = words[position - 1] if position else None
        if previous is None:
            text = word.text
        elif previous.cut and previous.number + 1 == word.number:
            text = joined_word(text, word.text)
        else:
            text = f"{text} {word.text}"
    return text


def joined_word(head: str, rest: str) -> str:
    """Join a cut word with its rest; the hyphen stays before a capital or a digit."""
    return head + rest if rest[:1].islower() else f"{head}-{rest}"


class _Reader:
    """Reads one text page."""

    def __init__(self, handle: Any, count: int) -> None:
        self._handle = handle
        self._text = _characters(handle, count)
        self._loose = pdfium.FS_RECTF()
        self._matrix = pdfium.FS_MATRIX()
        self._scale = 1.0  # of the fonts of the line
        self._edges = tuple(ctypes.c_double() for _ in range(4))

    def parts(self) -> Iterator[_Part]:
        """Yield words, and the parts of words that a line's end cuts, in content order."""
        text = self._text
        has_marks = _HYPHEN.search(text) is not None
        line = quarters = position = 0
        for match in _WORD.finditer(text):
            start, end = match.span()
            breaks = text.count("\n", position, start)
            line += breaks
            if breaks or position == 0:
                quarters = self._quarters(start)
            position = end
            spans = self._spans(start, end) if has_marks else ((start, end, False),)
            for first, last, cut in spans:
                for left, right, box in self._runs(first, last, quarters):
                    letters = text[left:right]
                    if not (letters.isascii() and letters.isprintable()):
                        letters = cleaned(letters)
                    if letters:
                        size = self._font_size(left)
                        is_cut = cut and right == last
                        yield _Part(letters, box, size, quarters, line, is_cut)
                line += cut

    def _spans(self, start: int, end: int) -> list[tuple[int, int, bool]]:
        """Parts of a word as (start, end, cut), between hyphens at the ends of lines."""
        marks = [match.start() for match in _HYPHEN.finditer(self._text, start, end)]
        if not marks:
            return [(start, end, False)]
        spans = []
        for mark in marks:
            if mark > start:
                spans.append((start, mark, True))
            start = mark + 1
        if start < end:
            spans.append((start, end, False))
        return spans

    def _runs(self, start: int, end: int, quarters: int) -> Iterable[tuple[int, int, Box]]:
        """Return the runs of a word whose characters stand side by side, with their boxes.

        pdfium leaves out the space between characters of two cells, and sometimes of two lines.
        """
        first = self._character_box(start)
        if end - start == 1:
            return ((start, end, first),)
        box = united(first, self._character_box(end - 1))
        left, bottom, right, top = box
        height = max(first.top - first.bottom, 1.0)
        is_compact = (
            top - bottom < _HIGHEST_WORD * height
            and right - left < _WIDEST_CHARACTER * height * (end - start)
        )
        if quarters % 2 == 1 or is_compact:
            return ((start, end, box),)
        return self._divided(start, end, first, height)

    def _divided(
        self, start: int, end: int, first: Box, height: float
    ) -> Iterator[tuple[int, int, Box]]:
        """Yield the runs of a word that is too wide or too high, see ``_runs``."""
        begin, box = start, first
        for index in range(start + 1, end):
            following = self._character_box(index)
            if (
                following.left - box.right > _GAP * height
                or following.right < box.left
                or following.top <= box.bottom
                or following.bottom >= box.top
            ):
                yield begin, index, box
                begin, box = index, following
            else:
                box = united(box, following)
        yield begin, end, box

    def _font_size(self, index: int) -> float:
        """Size of a character's font on the page, in half points; 0 if the font has none."""
        size = pdfium.FPDFText_GetFontSize(self._handle, index) * self._scale
        return round(2 * size) / 2 if isfinite(size) else 0.0

    def _quarters(self, index: int) -> int:
        """Quarter turns of a character, counterclockwise; remember the scale of its font."""
        matrix = self._matrix
        if not pdfium.FPDFText_GetMatrix(self._handle, index, matrix):
            return 0
        self._scale = hypot(matrix.c, matrix.d)
        if abs(matrix.b) > abs(matrix.a):
            return 1 if matrix.b > 0 else 3
        return 0 if matrix.a >= 0 else 2

    def _character_box(self, index: int) -> Box:
        """Box of a character, as high as its font; as high as its ink if that has no measure."""
        rect = self._loose
        if pdfium.FPDFText_GetLooseCharBox(self._handle, index, rect):
            box = upright(rect.left, rect.bottom, rect.right, rect.top)
            left, bottom, right, top = box
            if right - left > _SMALLEST and top - bottom > _SMALLEST:
                return box
        edges = self._edges
        if pdfium.FPDFText_GetCharBox(self._handle, index, *edges):
            left, right, bottom, top = (edge.value for edge in edges)
            return upright(left, bottom, right, top)
        return _NOWHERE


def _characters(handle: Any, count: int) -> str:
    """Text of a page, with as many characters as pdfium counts."""
    units = (ctypes.c_ushort * (2 * count + 2))()
    written = pdfium.FPDFText_GetText(handle, 0, count, units)
    text = bytes(units)[: 2 * max(written - 1, 0)].decode("utf-16-le", "replace")
    if len(text) == count:
        return text
    # the text lacks characters that have no code, so that its indexes are not those of the page
    codes = (pdfium.FPDFText_GetUnicode(handle, index) for index in range(count))
    return "".join(chr(code) if _is_character(code) else "\ufffd" for code in codes)


def _is_character(code: int) -> bool:
    return 0 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF


def cleaned(text: str) -> str:
    """Remove soft hyphens and controls other than white space; replace ligatures by letters."""
    if text.isascii() and text.isprintable():
        return text
    text = _PRESENTATION.sub(_letters, text.translate(_REPLACED))
    return unicodedata.normalize("NFC", text)


def _letters(ligatures: re.Match[str]) -> str:
    # a few forms decompose into a space and a mark; a word has no spaces
    return "".join(unicodedata.normalize("NFKC", ligatures[0]).split())


def united(first: Box, second: Box) -> Box:
    """Return the smallest box around two boxes."""
    left, bottom, right, top = first
    other_left, other_bottom, other_right, other_top = second
    return Box(
        min(left, other_left),
        min(bottom, other_bottom),
        max(right, other_right),
        max(top, other_top),
    )


def upright(left: float, bottom: float, right: float, top: float) -> Box:
    """Return the box with its edges in order; a box that is far off any page becomes empty."""
    low, high = -_FARTHEST, _FARTHEST
    if low < left < right < high and low < bottom < top < high:
        return Box(left, bottom, right, top)
    if low < left < high and low < right < high and low < bottom < high and low < top < high:
        return Box(min(left, right), min(bottom, top), max(left, right), max(bottom, top))
    return _NOWHERE
