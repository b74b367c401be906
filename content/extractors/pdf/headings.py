"""Headings: the titles of the outline, and lines in larger type."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from content.extractors.pdf.blocks import PageText, Position, TextLine, body_size
from content.extractors.pdf.outline import OutlineEntry
from content.extractors.pdf.titles import Titles, find_titles

__all__ = ["Headings", "find_headings"]

DEEPEST_LEVEL = 6
LONGEST = 200  # characters
_LARGER = 1.12  # than the text
_RAREST_SHARE = 0.2  # of the characters: larger type that is more frequent is text too
_MOST_SIZES = 5
_LEADERS = re.compile(r"(?:[.\u00b7\u2026_] ?){4}")  # of a table of contents
_WORD = re.compile(r"[^\W\d_]{3}|[\u3040-\u9fff\uac00-\ud7af]{2}")  # formulas have shorter ones


@dataclass(frozen=True, slots=True)
class Headings:
    """Headings of a document, by position.

    ``levels`` has the level of each line of a heading. ``joined`` are those lines that continue the
    heading before. ``hidden`` are titles that no line shows, by the position that their section
    begins at.
    """

    levels: Mapping[Position, int] = field(default_factory=dict)
    joined: frozenset[Position] = frozenset()
    hidden: Mapping[Position, OutlineEntry] = field(default_factory=dict)


def find_headings(
    pages: Sequence[PageText], heads: frozenset[Position], entries: Sequence[OutlineEntry]
) -> Headings:
    """Find the headings among the lines that are not running heads."""
    lines = dict(_lines(pages, heads))
    titles = find_titles(pages, lines, entries)
    levels_of_sizes = _levels_of_sizes(pages, lines, titles)
    levels = dict(titles.levels)
    joined = set(titles.joined)
    for position, line in lines.items():
        level = levels_of_sizes.get(line.size, 0)
        if position in levels or not level or not _is_title(line.text):
            continue
        levels[position] = level
        previous = (position[0], position[1] - 1)
        if (
            previous not in titles.levels
            and levels.get(previous) == level
            and _continues(lines[previous], line)
        ):
            joined.add(position)
    hidden = {
        position: entry for position, entry in titles.hidden.items() if position not in levels
    }
    return Headings(levels, frozenset(joined), hidden)


def _lines(
    pages: Sequence[PageText], heads: frozenset[Position]
) -> Iterator[tuple[Position, TextLine]]:
    for index, page in enumerate(pages):
        for number, block in enumerate(page.blocks):
            if isinstance(block, TextLine) and (index, number) not in heads:
                yield (index, number), block


def _is_title(text: str) -> bool:
    return len(text) < LONGEST and bool(_WORD.search(text)) and not _LEADERS.search(text)


def _continues(before: TextLine, line: TextLine) -> bool:
    """Test whether a line in large type continues the heading in the line before."""
    gap = before.box.bottom - line.box.top
    return before.size == line.size and -0.5 * line.size < gap < line.size


def _levels_of_sizes(
    pages: Sequence[PageText], lines: Mapping[Position, TextLine], titles: Titles
) -> Mapping[float, int]:
    """Level of each size that is larger than the text and rare, the largest first.

    A size in which titles of the outline are set has their level.
    """
    characters: Counter[float] = Counter()
    of_titles: set[float] = set()
    votes: dict[float, Counter[int]] = defaultdict(Counter)
    for position, line in lines.items():
        characters[line.size] += len(line.text)
        if _is_title(line.text):
            of_titles.add(line.size)
        if position in titles.levels:
            votes[line.size][titles.levels[position]] += 1
    smallest = _LARGER * body_size(pages)
    most = _RAREST_SHARE * characters.total()
    sizes = sorted(
        (size for size in of_titles if size > smallest and characters[size] < most), reverse=True
    )
    levels: dict[float, int] = {}
    level = 0
    for size in sizes[:_MOST_SIZES]:
        level = votes[size].most_common(1)[0][0] if votes[size] else level + 1
        levels[size] = min(level, DEEPEST_LEVEL)
    return levels
