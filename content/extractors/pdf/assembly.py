"""Rendition of a PDF: its pages as lines of Markdown, with page and box of each line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from content.extractors.pdf.blocks import PageText, Position, TextLine, TextTable
from content.extractors.pdf.document import Document, open_document
from content.extractors.pdf.headings import Headings, find_headings
from content.extractors.pdf.outline import read_outline
from content.extractors.pdf.page_heads import find_running_heads
from content.extractors.pdf.pages import Pages, read_pages
from content.extractors.pdf.words import turned, united
from content.rendition import MOST_BYTES, Box, Place, Rendition, Section
from runtime.errors import Damaged, LimitExceeded, NoTextLayer

__all__ = ["extract"]

MOST_NAMED_ATTACHMENTS = 5
_PARAGRAPH_GAP = 0.75  # of the size of the type
_BACK = 3.0  # of the size of the type: a line that is so much higher begins a column
_SENTENCE_ENDS = (".", "!", "?", ":")
_LONGEST_NAME = 40  # characters
_LONGEST_WARNING = 300  # characters
_FILE_NAME = re.compile(r"\.\w{2,5}$|^untitled\b|[\\/]", re.IGNORECASE)
_PROGRAM = re.compile(r"^Microsoft (?:Word|PowerPoint|Excel) - ")


def extract(raw: bytes) -> Rendition:
    """Return the rendition of a PDF. Boxes are in points of the page's own coordinates.

    Raises:
        Encrypted: the PDF does not open without a password.
        NoTextLayer: no page holds text.
        Damaged: the bytes are not a PDF, or none of its pages can be read.
        LimitExceeded: the PDF has over 2,000 pages, 200,000 lines or 8 MiB of text.
    """
    with open_document(raw) as document:
        pages = read_pages(document)
        entries = read_outline(document.handle, document.page_count)
        title = document.title
        warnings = tuple(_warnings(pages, document))
    if len(pages.damaged) == len(pages.texts):
        raise Damaged(
            "none of the pages of the PDF can be read",
            "save it again with the program that made it, and publish that",
        )
    heads = find_running_heads(pages.texts)
    headings = find_headings(pages.texts, heads, entries)
    assembly = _Assembly(heads, headings)
    for index, page in enumerate(pages.texts):
        assembly.add_page(index, page)
    if not assembly.holds_text:
        count = len(pages.texts)
        raise NoTextLayer(
            "the PDF has no text, in its only page"
            if count == 1
            else f"the PDF has no text, in any of its {count:,} pages",
            "add a text layer, for example with `ocrmypdf in.pdf out.pdf`, and publish that",
        )
    return assembly.rendition(title, warnings)


class _Assembly:
    """Lines of a rendition, page after page."""

    def __init__(self, heads: frozenset[Position], headings: Headings) -> None:
        self._heads = heads
        self._headings = headings
        self._lines: list[str] = []
        self._places: dict[Place, int] = {}
        self._place_of: list[int] = []
        self._sections: list[Section] = []
        self._bytes = 0

    @property
    def holds_text(self) -> bool:
        """True if a line is not blank."""
        return bool(self._lines)

    def add_page(self, index: int, page: PageText) -> None:
        """Add the blocks of a page, apart from running heads, and then its notes."""
        self._part()
        previous: TextLine | None = None
        for number, block in enumerate(page.blocks):
            position = (index, number)
            if position in self._heads:
                continue
            if position in self._headings.hidden:
                entry = self._headings.hidden[position]
                self._part()
                self._sections.append(Section(len(self._lines), entry.level, entry.title))
            if isinstance(block, TextTable):
                self._table(page, block)
                previous = None
            elif position in self._headings.levels:
                self._heading(page, position, block)
                previous = None
            else:
                if previous is not None and _parts_paragraphs(previous, block):
                    self._part()
                self._line(block.text, _place(page, block.box))
                previous = block
        if page.notes:
            self._part()
        for note in page.notes:
            self._line(note.text, Place(page.number, _rounded(note.box), f"page={page.number}"))

    def _table(self, page: PageText, table: TextTable) -> None:
        self._part()
        for row in table.rows:
            self._line(row.text, _place(page, row.box))
        self._part()

    def _heading(self, page: PageText, position: Position, line: TextLine) -> None:
        """Add a heading with the lines that continue it."""
        if position in self._headings.joined:
            return
        index, number = position
        texts = [line.text]
        box = line.box
        for following_number in range(number + 1, len(page.blocks)):
            following = page.blocks[following_number]
            if (index, following_number) not in self._headings.joined or isinstance(
                following, TextTable
            ):
                break
            texts.append(following.text)
            box = united(box, following.box)
        level = self._headings.levels[position]
        name = " ".join(texts)
        self._part()
        self._sections.append(Section(len(self._lines), level, name))
        self._line(f"{'#' * level} {name}", _place(page, box))
        self._part()

    def _part(self) -> None:
        """Add a blank line, if there is none."""
        if self._lines and self._lines[-1]:
            self._lines.append("")
            self._place_of.append(self._place_of[-1])
            self._bytes += 1

    def _line(self, text: str, place: Place) -> None:
        self._bytes += len(text.encode()) + 1
        if self._bytes > MOST_BYTES:
            raise LimitExceeded(
                "the text of the PDF is over the limit of 8 MiB", "divide it and publish the parts"
            )
        self._lines.append(text)
        self._place_of.append(self._places.setdefault(place, len(self._places)))

    def rendition(self, title: str, warnings: tuple[str, ...]) -> Rendition:
        """Return the lines so far, without a blank line at the end."""
        while self._lines and not self._lines[-1]:
            self._lines.pop()
            self._place_of.pop()
        return Rendition(
            lines=self._lines,
            places=tuple(self._places),
            place_of=self._place_of,
            sections=self._sections,
            title=_title(title) or self._first_title(),
            warnings=warnings,
        )

    def _first_title(self) -> str | None:
        """Return the outermost heading of the first page that has headings, if it is page 1."""
        first = [
            section
            for section in self._sections
            if self._page_of(section.row) == 1 and self._lines[section.row].startswith("#")
        ]
        outermost = min(first, key=lambda section: section.level, default=None)
        return outermost.name if outermost else None

    def _page_of(self, row: int) -> int | None:
        return list(self._places)[self._place_of[row]].page


def _parts_paragraphs(previous: TextLine, line: TextLine) -> bool:
    gap = previous.box.bottom - line.box.top
    if gap < -_BACK * line.size:  # the line begins a column, maybe in the middle of a sentence
        return previous.text.endswith(_SENTENCE_ENDS) or not line.text[:1].islower()
    return gap > _PARAGRAPH_GAP * line.size


def _place(page: PageText, box: Box) -> Place:
    return Place(page.number, _rounded(turned(box, -page.quarters)), f"page={page.number}")


def _rounded(box: Box) -> Box | None:
    """Round to a tenth of a point. Returns None for a box without an area."""
    if box.right <= box.left or box.top <= box.bottom:
        return None
    return Box(*(round(edge, 1) for edge in box))


def _title(title: str) -> str | None:
    """Title among the properties. Returns None for the name of a file or an empty title."""
    title = _PROGRAM.sub("", title)
    if _FILE_NAME.search(title) or not any(map(str.isalpha, title)):
        return None
    return title


def _warnings(pages: Pages, document: Document) -> Iterator[str]:
    if pages.without_text:
        yield _page_warning(pages.without_text, ("holds no text", "hold no text"))
    if pages.damaged:
        yield _page_warning(pages.damaged, ("is damaged", "are damaged"))
    if count := document.attachment_count:
        names = [
            f'"{_printable(name)[:_LONGEST_NAME]}"'
            for name in document.attachments(MOST_NAMED_ATTACHMENTS)
        ]
        more = f" and {count - len(names):,} more" if count > len(names) else ""
        noun = "attachment is" if count == 1 else "attachments are"
        yield f"{count:,} {noun} not read: {', '.join(names)}{more}"[:_LONGEST_WARNING]


def _printable(name: str) -> str:
    return "".join(character if character.isprintable() else " " for character in name)


def _page_warning(numbers: Sequence[int], verbs: tuple[str, str]) -> str:
    """Name the pages: "page 3 holds no text", "pages 2, 4-9 hold no text"."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    listed = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
    warning = f"page {listed} {verbs[0]}" if len(numbers) == 1 else f"pages {listed} {verbs[1]}"
    if len(warning) <= _LONGEST_WARNING:
        return warning
    return f"{len(numbers):,} pages {verbs[1]}, the first is page {numbers[0]}"
