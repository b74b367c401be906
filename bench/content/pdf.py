"""Quality and speed of the extraction of PDFs."""

from __future__ import annotations

import ctypes
import json
import re
import resource
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby
from pathlib import Path
from time import process_time
from typing import Any

import pypdfium2.raw as pdfium

from content.extractors.pdf import extract
from content.extractors.pdf.cells import DIVIDER
from content.extractors.pdf.document import open_document
from content.extractors.pdf.words import cleaned, united
from content.rendition import Box, Rendition
from runtime.errors import Poison

__all__ = ["figures"]

_BOOK = "pdf/GeoTopo-komprimiert.pdf"
_COLUMNS = "pdf/multicolumn.pdf"
_PAGES_OF_PROSE = 2  # of that document; its third page holds a table
_LINES_OF_CHUNK = 12
_TOKEN = re.compile(r"\w+")
_CUT = re.compile("[\x02\ufffe]\\s*")  # marks of a word that a line's end cuts
_CELLS = re.compile(r"(?<!\\)\|")


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Extract each PDF of a corpus, and compare the renditions with what the corpus expects.

    ``corpus`` is a folder with ``expected.json`` beside the folder ``pdf``. Times are of the
    processor. Words are compared without case; ``words_under_boxes`` is the share of the words of
    12 lines that pdfium reads under the boxes of these lines.
    """
    rows: list[dict[str, Any]] = json.loads((corpus / "expected.json").read_text("utf-8"))
    expected = [row for row in rows if row["file"].startswith("pdf/")]
    renditions: dict[str, Rendition] = {}
    times: dict[str, float] = {}
    outcomes: dict[str, str] = {}
    for row in expected:
        raw = (corpus / row["file"]).read_bytes()
        started = process_time()
        try:
            renditions[row["file"]] = extract(raw)
            outcomes[row["file"]] = "indexed"
        except Poison as error:
            outcomes[row["file"]] = type(error).__name__
        times[row["file"]] = process_time() - started
    pages = sum(row.get("pages", 1) for row in expected if row["file"] in renditions)
    book = _tokens("\n".join(renditions[_BOOK].lines))
    truth = _tokens((corpus / _BOOK).with_suffix(".txt").read_text("utf-8"))
    wanted, right = _table_rows(expected, renditions)
    return {
        "files": len(expected),
        "outcomes_as_expected": sum(outcomes[row["file"]] == row["outcome"] for row in expected),
        "headings_as_expected": round(_shown_headings(expected, renditions), 3),
        "pages_per_cpu_s": round(pages / sum(times[file] for file in renditions), 1),
        "slowest_file_s": round(max(times.values()), 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "book_word_f1": round(_f1(book, truth), 3),
        "book_4gram_f1": round(_f1(_grams(book), _grams(truth)), 3),
        "table_rows": wanted,
        "table_rows_right": right,
        "tables": sum(map(_tables, renditions.values())),
        "tables_in_columns_of_prose": _tables(renditions[_COLUMNS], _PAGES_OF_PROSE),
        "words_under_boxes": round(_share_under_boxes(corpus, renditions), 3),
    }


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def _grams(tokens: Sequence[str]) -> Iterable[Hashable]:
    return zip(*(tokens[start:] for start in range(4)), strict=False)


def _f1(own: Iterable[Hashable], truth: Iterable[Hashable]) -> float:
    own_counts, true_counts = Counter(own), Counter(truth)
    return 2 * (own_counts & true_counts).total() / (own_counts.total() + true_counts.total())


def _shown_headings(
    expected: Iterable[Mapping[str, Any]], renditions: Mapping[str, Rendition]
) -> float:
    """Share of the expected headings that are sections."""
    shown = [
        heading in {section.name for section in renditions[row["file"]].sections}
        for row in expected
        for heading in row.get("headings", ())
    ]
    return sum(shown) / len(shown)


def _table_rows(
    expected: Iterable[Mapping[str, Any]], renditions: Mapping[str, Rendition]
) -> tuple[int, int]:
    """Count the expected rows of tables, and those whose cells are there in order."""
    right = []
    for row in expected:
        cells = [
            [cell.strip() for cell in _CELLS.split(line)[1:-1]]
            for line in (renditions[row["file"]].lines if row.get("rows") else ())
        ]
        for first, others in row.get("rows", {}).items():
            mine = next((own for own in cells if own and own[0] == first), [])
            right.append(len(mine) > len(others) and _in_order(others, mine[1:]))
    return len(right), sum(right)


def _in_order(wanted: Iterable[str], cells: Iterable[str]) -> bool:
    rest = iter(cells)
    return all(any(cell == value for cell in rest) for value in wanted)


def _tables(rendition: Rendition, last_page: int | None = None) -> int:
    pages = [rendition.places[place].page or 0 for place in rendition.place_of]
    return sum(
        DIVIDER.fullmatch(line) is not None and (last_page is None or page <= last_page)
        for line, page in zip(rendition.lines, pages, strict=True)
    )


def _share_under_boxes(corpus: Path, renditions: Mapping[str, Rendition]) -> float:
    """Share of the words of a few lines that pdfium reads under the lines' boxes."""
    words = under = 0
    for file, rendition in renditions.items():
        with open_document((corpus / file).read_bytes()) as document:
            for number, chunk in _chunks(rendition):
                with document.page(number - 1) as page:
                    if page is None:
                        continue
                    own = Counter(_tokens(" ".join(text for text, _ in chunk)))
                    box = reduce(united, (box for _, box in chunk))
                    inside = Counter(_tokens(_text_under(page.text, box)))
                words += own.total()
                under += (own & inside).total()
    return under / words


def _chunks(rendition: Rendition) -> Iterator[tuple[int, Sequence[tuple[str, Box]]]]:
    """Yield runs of lines that have a box, each with its page."""
    places = [rendition.places[place] for place in rendition.place_of]
    lines = [
        (place.page, text, place.box)
        for text, place in zip(rendition.lines, places, strict=True)
        if text and place.page is not None and place.box is not None
    ]
    for page, group in groupby(lines, key=lambda line: line[0]):
        own = [(text, box) for _, text, box in group]
        for start in range(0, len(own), _LINES_OF_CHUNK):
            yield page, own[start : start + _LINES_OF_CHUNK]


def _text_under(page: Any, box: Box) -> str:
    edges = (page, box.left, box.top, box.right, box.bottom)
    length = pdfium.FPDFText_GetBoundedText(*edges, None, 0)
    if length <= 0:
        return ""
    units = (ctypes.c_ushort * (2 * length + 2))()
    pdfium.FPDFText_GetBoundedText(*edges, units, 2 * length + 2)
    text = bytes(units).decode("utf-16-le", "ignore").rstrip("\0")
    return cleaned(_CUT.sub("", text))
