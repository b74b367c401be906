"""Visual rows of words, and the segments that wide gaps divide them into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import itemgetter

from content.extractors.pdf.words import Word
from content.rendition import Box

__all__ = ["Row", "Segment", "box_of", "in_lines", "numbers_in", "rows_of"]

_NUMBER = re.compile(r"[\W\d]*\d[\W\d]*%?")
_WIDE_GAP = 0.9  # of the size of the type
_SHARED_GAP = 0.6  # of the size of the type, if several lines have it at one place
_OTHER_LINE = 0.9  # of the size of the type: words whose middles differ by more
_NARROWEST_GAP = 2.4  # points: that of the smallest measure, compared first to save time
_SAME_ROW = 0.5  # of the size of the type: superscripts belong to the row
_OPEN_ROWS = 3  # rows that a word is compared with: taller type may begin above smaller type
_FROM_LEFT = itemgetter(Word._fields.index("left"), Word._fields.index("number"))


class Row(tuple[Word, ...]):  # noqa: SLOT001 -- cached properties need a dictionary
    """Words of about one height, from the left, at least one; or a segment of them.

    Most rows are asked for their segments several times, so that these are kept.
    """

    @classmethod
    def of(cls, words: Iterable[Word]) -> Row:
        """Return the row of words in any order."""
        return cls(sorted(words, key=_FROM_LEFT))

    @cached_property
    def segments(self) -> Sequence[Segment]:
        """Parts between wide gaps; of several lines those between the gaps that all share."""
        starts = [0]
        before = self[0]
        right = before.right
        for position, word in enumerate(self):
            gap = word.left - right
            if gap > _NARROWEST_GAP and self._is_wide(gap, max(before.measure, word.measure)):
                starts.append(position)
            if word.right > right:
                right = word.right
            before = word
        if len(starts) == 1:
            return (self,)
        ends = [*starts[1:], len(self)]
        return [Row(self[start:end]) for start, end in zip(starts, ends, strict=True)]

    def _is_wide(self, gap: float, size: float) -> bool:
        return gap > _WIDE_GAP * size or (gap > _SHARED_GAP * size and self.is_tall)

    @property
    def is_divided(self) -> bool:
        """True for a row of several segments."""
        return len(self.segments) > 1

    @cached_property
    def is_tall(self) -> bool:
        """True if the words stand in several lines."""
        return _are_tall(self)

    @cached_property
    def box(self) -> Box:
        """Smallest box around the words, see ``box_of``."""
        return box_of(self)

    @cached_property
    def edges(self) -> tuple[float, float]:
        """Left and right edge."""
        return self[0].left, max([word.right for word in self])

    @property
    def text(self) -> str:
        """Words with spaces between them."""
        return " ".join([word.text for word in self])


Segment = Row
"""Words of a row without a wide gap between them."""


def rows_of(words: Iterable[Word]) -> list[Row]:
    """Divide words into rows, the highest first."""
    # the sum of its edges orders a word by its middle
    ordered = sorted([(-word.bottom - word.top, word.number, word) for word in words])
    heights: list[tuple[float, float]] = []  # middle and size of the first word of each row
    rows: list[list[Word]] = []
    for twice, _, word in ordered:
        middle, size = twice / -2, word.measure
        for position in range(max(0, len(rows) - _OPEN_ROWS), len(rows)):
            other_middle, other_size = heights[position]
            if abs(other_middle - middle) < _SAME_ROW * min(other_size, size):
                rows[position].append(word)
                break
        else:
            heights.append((middle, size))
            rows.append([word])
    return [*map(Row.of, rows)]


def _are_tall(words: Sequence[Word]) -> bool:
    doubled = [word.bottom + word.top for word in words]  # middles
    first, most = doubled[0], 2 * _OTHER_LINE * words[0].measure
    return max(doubled) - first > most or first - min(doubled) > most


def in_lines(words: Sequence[Word]) -> Sequence[Word]:
    """Return the words of a cell line by line."""
    return [word for line in rows_of(words) for word in line] if _are_tall(words) else words


def numbers_in(segments: Iterable[Sequence[Word]]) -> int:
    """Count the segments that are numbers."""
    texts = ("".join([word.text for word in segment]) for segment in segments)
    return sum(_NUMBER.fullmatch(text) is not None for text in texts)


def box_of(words: Sequence[Word]) -> Box:
    """Return the smallest box around at least one word, without words that have no box."""
    boxed = [word for word in words if word.right > word.left and word.top > word.bottom] or words
    return Box(
        min([word.left for word in boxed]),
        min([word.bottom for word in boxed]),
        max([word.right for word in boxed]),
        max([word.top for word in boxed]),
    )
