"""Running heads and feet: lines that pages repeat in their outer tenths, and page numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from content.extractors.pdf.blocks import PageText, Position, TextLine, body_size

__all__ = ["find_running_heads"]

_OUTER = 0.1  # of a page's height
_FEWEST_PAGES = 3
_SMALLEST_SHARE = 0.3  # of the pages
_LARGEST = 1.1  # of the size of the text: larger lines with a number are headings
_COMPARED_CHARACTERS = 80
_DIGITS = re.compile(r"\d+")
_LONE_NUMBER = re.compile(r"\W*(?:\d{1,5}|[ivxlc]{1,8})\W*", re.IGNORECASE)
_OUTER_NUMBER = re.compile(r"(?:^(\d{1,5})\b|\b(\d{1,5})$)")


def find_running_heads(pages: Sequence[PageText]) -> frozenset[Position]:
    """Return the positions of running heads, running feet and page numbers."""
    outer = [(position, line) for position, line in _outer_lines(pages) if line.text]
    texts = Counter(
        text for text, _ in {(_comparable(line.text), page) for (page, _), line in outer}
    )
    largest = _LARGEST * body_size(pages)
    offsets_of = {
        position: _offsets(line.text, position[0]) if line.size <= largest else frozenset()
        for position, line in outer
    }
    offsets = Counter(
        offset
        for offset, _ in {(offset, page) for (page, _), own in offsets_of.items() for offset in own}
    )
    fewest = max(_FEWEST_PAGES, _SMALLEST_SHARE * len(pages))
    heads = {text for text, count in texts.items() if count >= fewest}
    numbered = {offset for offset, count in offsets.items() if count >= fewest}
    return frozenset(
        position
        for position, line in outer
        if _comparable(line.text) in heads
        or (len(pages) > 1 and _LONE_NUMBER.fullmatch(line.text))
        or not numbered.isdisjoint(offsets_of[position])
    )


def _outer_lines(pages: Sequence[PageText]) -> Iterator[tuple[Position, TextLine]]:
    for index, page in enumerate(pages):
        height = page.box.top - page.box.bottom
        high, low = page.box.top - _OUTER * height, page.box.bottom + _OUTER * height
        for number, block in enumerate(page.blocks):
            if isinstance(block, TextLine) and (block.box.bottom > high or block.box.top < low):
                yield (index, number), block


def _comparable(text: str) -> str:
    """Return the text without its numbers, which differ from page to page."""
    return _DIGITS.sub("#", text)[:_COMPARED_CHARACTERS]


def _offsets(text: str, page: int) -> frozenset[int]:
    """Differences of the numbers at both ends of a line and the page that it is on.

    The difference is the same on most pages where such a number is the page's.
    """
    numbers = _OUTER_NUMBER.findall(text)
    return frozenset(int(first or last) - page for first, last in numbers)
