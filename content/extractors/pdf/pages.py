"""Pages of a document, read one after another."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from content.extractors.pdf.blocks import PageText, TextLine, blocks_of
from content.extractors.pdf.document import Document, OpenPage
from content.extractors.pdf.notes import read_notes
from content.extractors.pdf.rulings import Rulings, read_rulings
from content.extractors.pdf.tables import find_tables
from content.extractors.pdf.words import Word, read_words, turned
from content.rendition import Box
from runtime.errors import LimitExceeded

__all__ = ["Pages", "is_readable", "read_pages"]

MOST_LINES = 200_000
MOST_PATHS = 500_000  # of all pages; tables of later pages are found by alignment only
FEWEST_LETTERS = 10  # of a page with images that is not itself an image
_DRAWING = 50  # paths: text that is drawn has more, the rules of an empty page fewer
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_UNREADABLE = frozenset({"Co", "Cn"})  # private use, or not assigned


@dataclass(slots=True)
class Pages:
    """Pages of a document, and the numbers of those that are damaged or that hold no text."""

    texts: list[PageText] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    without_text: list[int] = field(default_factory=list)


def read_pages(document: Document) -> Pages:
    """Read all pages.

    Raises:
        LimitExceeded: a page has more than 300,000 characters, or all have more than 200,000 lines.
    """
    pages = Pages()
    paths = lines = 0
    for index in range(document.page_count):
        with document.page(index) as page:
            if page is None:
                pages.damaged.append(index + 1)
                pages.texts.append(PageText(index + 1, Box(0.0, 0.0, 0.0, 0.0), 0, ()))
                continue
            reading = _Reading(page, document, paths < MOST_PATHS)
        text = reading.text(index + 1)
        paths += reading.rulings.paths
        lines += sum(
            1 if isinstance(block, TextLine) else len(block.rows) for block in text.blocks
        ) + len(text.notes)
        if lines > MOST_LINES:
            raise LimitExceeded(
                f"the PDF has more than {MOST_LINES:,} lines", "divide it and publish the parts"
            )
        pages.texts.append(text)
        if reading.lacks_text:
            pages.without_text.append(index + 1)
    return pages


class _Reading:
    """Everything that is read from one page while it is open."""

    def __init__(self, page: OpenPage, document: Document, with_rulings: bool) -> None:
        self.box = page.box
        content = read_words(page.text)
        self.quarters = content.quarters
        self.rulings = read_rulings(page.handle, content.quarters) if with_rulings else Rulings()
        self.words: Sequence[Word] = content.words
        if not is_readable(self.words, self.rulings.images):
            self.words = ()
        self.notes = read_notes(page, document.forms)
        self._page_count = document.page_count

    @property
    def lacks_text(self) -> bool:
        """True for a page that shows something, but holds no text."""
        shows = self.rulings.images > 0 or self.rulings.paths >= _DRAWING
        return shows and not self.words and not self.notes

    def text(self, number: int) -> PageText:
        """Divide the words into lines and tables."""
        tables = find_tables(self.words, self.rulings, self._page_count) if self.words else []
        blocks = blocks_of(self.words, tables)
        return PageText(number, turned(self.box, self.quarters), self.quarters, blocks, self.notes)


def is_readable(words: Sequence[Word], images: int) -> bool:
    """Test whether words are text: fonts without a map to Unicode give unreadable characters."""
    characters = "".join(word.text for word in words)
    letters = sum(map(str.isalnum, characters))
    if letters < (FEWEST_LETTERS if images else 1):
        return False
    unreadable: int = sum(
        character == "\ufffd" or unicodedata.category(character) in _UNREADABLE
        for character in _NOT_ASCII.findall(characters)
    )
    return 2 * unreadable < len(characters)
