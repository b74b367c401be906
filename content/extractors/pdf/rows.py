"""Visual rows of words, and the segments that wide gaps divide them into."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from content.extractors.pdf.words import Word
from content.rendition import Box

__all__ = [
    "Row",
    "Segment",
    "bounds",
    "box_of",
    "in_lines",
    "is_tall",
    "numbers_in",
    "rows_of",
    "segments_of",
    "text_of",
]

Segment = Sequence[Word]
"""Words of a row without a wide gap between them, from the left."""

Row = Sequence[Word]
"""Words of about one height, from the left."""

_NUMBER = re.compile(r"[\W\d]*\d[\W\d]*%?")
_WIDE_GAP = 0.9  # of the size of the type
_SHARED_GAP = 0.6  # of the size of the type, if several lines have it at one place
_OTHER_LINE = 0.9  # of the size of the type: words whose middles differ by more
_NARROWEST_GAP = 2.4  # points: that of the smallest measure, compared first to save time
_SAME_ROW = 0.5  # of the size of the type: superscripts belong to the row
_OPEN_ROWS = 3  # rows that a word is compared with: taller type may begin above smaller type


def rows_of(words: Iterable[Word]) -> list[Row]:
    """Divide words into rows, the highest first."""
    heights: list[tuple[float, float]] = []  # middle and size of the first word of each row
    rows: list[list[Word]] = []
    for word in sorted(words, key=lambda word: (-word.bottom - word.top, word.number)):
        own_middle, own_size = word.middle, word.measure
        for position in range(max(0, len(rows) - _OPEN_ROWS), len(rows)):
            middle, size = heights[position]
            if abs(middle - own_middle) < _SAME_ROW * min(size, own_size):
                rows[position].append(word)
                break
        else:
            heights.append((own_middle, own_size))
            rows.append([word])
    return [sorted(row, key=lambda word: (word.left, word.number)) for row in rows]


def segments_of(row: Row) -> list[Segment]:
    """Divide a row at its wide gaps; one of several lines at the gaps that its lines share."""
    segments = [[row[0]]]
    right = row[0].right
    for word, following in pairwise(row):
        gap = following.left - right
        if gap > _NARROWEST_GAP and _is_wide(gap, row, max(word.measure, following.measure)):
            segments.append([following])
        else:
            segments[-1].append(following)
        if following.right > right:
            right = following.right
    return [*segments]


def _is_wide(gap: float, row: Row, size: float) -> bool:
    return gap > _WIDE_GAP * size or (gap > _SHARED_GAP * size and is_tall(row))


def is_tall(words: Sequence[Word]) -> bool:
    """Return whether words stand in several lines."""
    middle, most = words[0].middle, _OTHER_LINE * words[0].measure
    return any(abs(word.middle - middle) > most for word in words)


def in_lines(words: Sequence[Word]) -> Sequence[Word]:
    """Return the words of a cell line by line."""
    return [word for line in rows_of(words) for word in line] if is_tall(words) else words


def bounds(segment: Segment) -> tuple[float, float]:
    """Left and right edge of a segment."""
    return segment[0].left, max(word.right for word in segment)


def numbers_in(segments: Iterable[Segment]) -> int:
    """Count the segments that are numbers."""
    texts = ("".join(word.text for word in segment) for segment in segments)
    return sum(_NUMBER.fullmatch(text) is not None for text in texts)


def text_of(segment: Segment) -> str:
    """Return the words of a segment with spaces between them."""
    return " ".join(word.text for word in segment)


def box_of(words: Sequence[Word]) -> Box:
    """Return the smallest box around at least one word, without words that have no box."""
    boxed = [word for word in words if word.right > word.left and word.top > word.bottom] or words
    return Box(
        min(word.left for word in boxed),
        min(word.bottom for word in boxed),
        max(word.right for word in boxed),
        max(word.top for word in boxed),
    )
