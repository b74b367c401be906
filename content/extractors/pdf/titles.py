"""Titles of the outline, and the lines that show them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from content.extractors.pdf.blocks import PageText, Position, TextLine
from content.extractors.pdf.outline import OutlineEntry

__all__ = ["Titles", "find_titles"]

MOST_TITLES = 200  # of one page
MOST_LINES = 1_000  # of one page in which titles are looked for
_MOST_LINES = 3  # of one title
_LONGEST_NUMBER = 12  # letters and digits before a title, such as "Chapter 12"


@dataclass(slots=True)
class Titles:
    """Levels of the lines that show titles, by position.

    ``joined`` are the lines that continue the title before. ``hidden`` are the titles that no line
    shows, by the position that their section begins at.
    """

    levels: dict[Position, int] = field(default_factory=dict)
    joined: set[Position] = field(default_factory=set)
    hidden: dict[Position, OutlineEntry] = field(default_factory=dict)


def find_titles(
    pages: Sequence[PageText],
    lines: Mapping[Position, TextLine],
    entries: Sequence[OutlineEntry],
) -> Titles:
    """Find the lines of each title on the page that it leads to."""
    by_page: dict[int, list[OutlineEntry]] = defaultdict(list)
    for entry in entries:
        by_page[entry.page].append(entry)
    positions: dict[int, list[Position]] = defaultdict(list)
    for position in lines:
        positions[position[0]].append(position)
    titles = Titles()
    for page, wanted in by_page.items():
        search = _PageSearch(titles, lines, positions[page][:MOST_LINES])
        for entry in wanted[:MOST_TITLES]:
            if not search.find(entry) and pages[page].quarters == 0:
                search.hide(entry)
    return titles


class _PageSearch:
    """Search for the titles of one page."""

    def __init__(
        self, titles: Titles, lines: Mapping[Position, TextLine], positions: Sequence[Position]
    ) -> None:
        self._titles = titles
        self._lines = lines
        self._positions = positions
        self._keys = [_letters(lines[position].text) for position in positions]

    def find(self, entry: OutlineEntry) -> bool:
        """Find the lines of a title; the line that differs least, then the largest, is best."""
        title = _letters(entry.title)
        best: tuple[int, float, int, int] | None = None
        for start, position in enumerate(self._positions):
            if position in self._titles.levels:
                continue
            difference, count = self._difference(start, title)
            if count:
                match = (difference, -self._lines[position].size, start, count)
                best = min(best or match, match)
        if best is None:
            return False
        _, _, start, count = best
        first, *others = self._positions[start : start + count]
        self._titles.levels[first] = entry.level
        for position in others:
            self._titles.levels[position] = entry.level
            self._titles.joined.add(position)
        return True

    def _difference(self, start: int, title: str) -> tuple[int, int]:
        """Length of the number that only one of title and lines has, and the number of lines.

        The number of lines is 0 if the lines from ``start`` do not show the title.
        """
        text = ""
        for count in range(1, _MOST_LINES + 1):
            end = start + count
            if end > len(self._positions) or self._positions[end - 1][1] != (
                self._positions[start][1] + count - 1
            ):
                return 0, 0
            text += self._keys[end - 1]
            difference = abs(len(text) - len(title))
            if (
                text
                and difference <= _LONGEST_NUMBER
                and (
                    text == title
                    or (text.endswith(title) and _is_number(text[:difference]))
                    or (title.endswith(text) and _is_number(title[:difference]))
                )
            ):
                return difference, count
            if len(text) > len(title) + _LONGEST_NUMBER:
                return 0, 0
        return 0, 0

    def hide(self, entry: OutlineEntry) -> None:
        """Begin the section of a title that no line shows at the first line below its place."""
        for position in self._positions:
            if entry.top is None or self._lines[position].box.bottom < entry.top:
                self._titles.hidden.setdefault(position, entry)
                return


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def _is_number(text: str) -> bool:
    """Test for a number such as ``12``, ``iv``, ``a`` or ``chapter12``."""
    return text[-1:].isdecimal() or len(text) <= 3 or set(text) <= set("ivxlc")
