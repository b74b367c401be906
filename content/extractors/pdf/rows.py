"""Visual rows of words, and the segments that wide gaps divide them into."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from content.extractors.pdf.words import Word
from content.rendition import Box

__all__ = ["Row", "Segment", "box_of", "rows_of", "segments_of", "text_of"]

Segment = Sequence[Word]
"""Words of a row without a wide gap between them, from the left."""

Row = Sequence[Word]
"""Words of about one height, from the left."""

_WIDE_GAP = 0.9  # of the size of the type
_NARROWEST_GAP = 3.6  # points: that of the smallest measure, compared first to save time
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
    """Divide a row at its wide gaps."""
    segments = [[row[0]]]
    for word, following in pairwise(row):
        gap = following.left - word.right
        if gap > _NARROWEST_GAP and gap > _WIDE_GAP * max(word.measure, following.measure):
            segments.append([following])
        else:
            segments[-1].append(following)
    return [*segments]


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
