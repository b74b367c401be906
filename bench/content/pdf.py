"""Quality and speed of the extraction of PDFs."""

from __future__ import annotations

import ctypes
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby, pairwise, zip_longest
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any

import pypdfium2.raw as pdfium

from bench.content.corpus import (
    Grid,
    expected_rows,
    f1,
    files,
    grids,
    number_of_shared,
    truth_of,
)
from bench.processes import peak_mb
from content.extractors.pdf import extract
from content.extractors.pdf.cells import DIVIDER
from content.extractors.pdf.document import open_document
from content.extractors.pdf.words import cleaned, united
from content.rendition import Box, Rendition
from runtime.errors import Poison

__all__ = ["figures"]

_LINES_OF_CHUNK = 12
_TOKEN = re.compile(r"\w+")
_CUT = re.compile("[\x02\ufffe]\\s*")  # marks of a word that a line's end cuts
_CELLS = re.compile(r"(?<!\\)\|")
_PROSE_PAGES = 2
"""Pages of a document without tables that are looked at; more may follow with figures."""


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Extract each PDF of a corpus, and compare the renditions with what the corpus expects.

    The true text of a document is the ``.txt`` beside it, its true tables the ``.csv``. Times are
    of the processor. Words are compared without case; ``words_under_boxes`` is the share of the
    words of 12 lines that pdfium reads under the boxes of these lines. ``table_f1`` compares pairs
    of cells that stand beside or below each other.
    """
    rows = expected_rows(corpus)
    paths = files(corpus, "pdf")
    renditions: dict[Path, Rendition] = {}
    times: dict[Path, float] = {}
    outcomes: dict[Path, str] = {}
    for path in paths:
        raw = path.read_bytes()
        started = process_time()
        try:
            renditions[path] = extract(raw)
            outcomes[path] = "indexed"
        except Poison as error:
            outcomes[path] = type(error).__name__
        times[path] = process_time() - started
    if not paths:
        return {}
    expected = [(path, rows[path]) for path in paths if path in rows]
    return {
        "files": len(paths),
        "files_expected": len(expected),
        "outcomes_as_expected": sum(outcomes[path] == row["outcome"] for path, row in expected),
        "slowest_file_s": round(max(times.values()), 2),
        "peak_mb": peak_mb(),
        **_pace({path: times[path] for path in renditions}),
        **_headings(expected, renditions),
        **_text_figures(rows, renditions),
        **_table_figures(expected, renditions),
        **_share_under_boxes(renditions),
    }


def _pace(times: Mapping[Path, float]) -> dict[str, float]:
    """Figures of the processor time of the documents that were extracted, in seconds."""
    pages: dict[Path, int] = {}
    for path in times:
        with open_document(path.read_bytes()) as document:
            pages[path] = document.page_count
    if not pages:
        return {}
    seconds = sum(times.values())
    return {
        "pages": sum(pages.values()),
        "pages_per_cpu_s": round(sum(pages.values()) / seconds, 1),
        "ms_a_page": round(1_000 * seconds / sum(pages.values()), 1),
        "ms_a_page_of_slowest": round(max(1_000 * times[path] / pages[path] for path in pages), 1),
    }


def _text_figures(
    rows: Mapping[Path, Mapping[str, Any]], renditions: Mapping[Path, Rendition]
) -> dict[str, float]:
    """Compare words, and runs of four, with the true texts; each document counts the same."""
    words: list[float] = []
    runs: list[float] = []
    for path, rendition in renditions.items():
        file = truth_of(path, rows.get(path, {}), ".txt")
        if file is not None:
            own = _tokens("\n".join(rendition.lines))
            truth = _tokens(file.read_text("utf-8"))
            words.append(_f1(own, truth))
            runs.append(_f1([*_grams(own)], [*_grams(truth)]))
    if not words:
        return {}
    return {
        "texts": len(words),
        "text_word_f1": round(fmean(words), 3),
        "text_4gram_f1": round(fmean(runs), 3),
    }


def _table_figures(
    expected: Sequence[tuple[Path, Mapping[str, Any]]], renditions: Mapping[Path, Rendition]
) -> dict[str, float]:
    figures: dict[str, float] = {"tables": sum(map(_tables, renditions.values()))}
    indexed = [(renditions[path], row) for path, row in expected if path in renditions]
    right = _right_rows(indexed)
    if right:
        figures["table_rows"] = len(right)
        figures["share_of_table_rows"] = round(sum(right) / len(right), 3)
    prose = [rendition for rendition, row in indexed if row.get("tables") == 0]
    if prose:
        figures["tables_in_prose"] = sum(_tables(rendition, _PROSE_PAGES) for rendition in prose)
    own_pairs = true_pairs = shared_pairs = 0
    for path, rendition in renditions.items():
        if truth := grids(path):
            own, true = _neighbours(_grids(rendition)), _neighbours(truth)
            own_pairs += len(own)
            true_pairs += len(true)
            shared_pairs += number_of_shared(own, true)
    if true_pairs:
        figures["table_f1"] = round(f1(shared_pairs, own_pairs, true_pairs), 3)
    return figures


def _grids(rendition: Rendition) -> list[Grid]:
    """Tables of a rendition: runs of lines that begin with a bar."""
    return [
        [
            [cell.strip().replace("\\|", "|") for cell in _CELLS.split(line)[1:-1]]
            for line in lines
            if not DIVIDER.fullmatch(line)
        ]
        for is_table, lines in groupby(rendition.lines, key=lambda line: line.startswith("|"))
        if is_table
    ]


def _neighbours(tables: Iterable[Grid]) -> list[tuple[str, str, str]]:
    """Pairs of the cells with a text that follow each other in a row or in a column."""
    pairs: list[tuple[str, str, str]] = []
    for table in tables:
        columns = zip_longest(*table, fillvalue="")
        for direction, lines in (("row", table), ("column", columns)):
            for line in lines:
                texts = ["".join(cell.split()).casefold() for cell in line]
                filled = [text for text in texts if text]
                pairs += [(direction, cell, other) for cell, other in pairwise(filled)]
    return pairs


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(unicodedata.normalize("NFKC", text).casefold())


def _grams(tokens: Sequence[str]) -> Iterable[Hashable]:
    return zip(*(tokens[start:] for start in range(4)), strict=False)


def _f1(own: Sequence[Hashable], truth: Sequence[Hashable]) -> float:
    return f1(number_of_shared(own, truth), len(own), len(truth))


def _headings(
    expected: Iterable[tuple[Path, Mapping[str, Any]]], renditions: Mapping[Path, Rendition]
) -> dict[str, float]:
    """Share of the expected headings that are sections."""
    shown = [
        heading in {section.name for section in renditions[path].sections}
        for path, row in expected
        if path in renditions
        for heading in row.get("headings", ())
    ]
    return {"headings_as_expected": round(sum(shown) / len(shown), 3)} if shown else {}


def _right_rows(indexed: Iterable[tuple[Rendition, Mapping[str, Any]]]) -> list[bool]:
    """Compare each expected row of a table: its cells must be there in order."""
    right = []
    for rendition, row in indexed:
        cells = [
            [cell.strip() for cell in _CELLS.split(line)[1:-1]]
            for line in (rendition.lines if row.get("rows") else ())
        ]
        for first, others in row.get("rows", {}).items():
            mine = next((own for own in cells if own and own[0] == first), [])
            right.append(len(mine) > len(others) and _in_order(others, mine[1:]))
    return right


def _in_order(wanted: Iterable[str], cells: Iterable[str]) -> bool:
    rest = iter(cells)
    return all(any(cell == value for cell in rest) for value in wanted)


def _tables(rendition: Rendition, last_page: int | None = None) -> int:
    pages = [rendition.places[place].page or 0 for place in rendition.place_of]
    return sum(
        DIVIDER.fullmatch(line) is not None and (last_page is None or page <= last_page)
        for line, page in zip(rendition.lines, pages, strict=True)
    )


def _share_under_boxes(renditions: Mapping[Path, Rendition]) -> dict[str, float]:
    """Share of the words of a few lines that pdfium reads under the lines' boxes."""
    words = under = 0
    for path, rendition in renditions.items():
        with open_document(path.read_bytes()) as document:
            for number, chunk in _chunks(rendition):
                with document.page(number - 1) as page:
                    if page is None:
                        continue
                    own = Counter(_tokens(" ".join(text for text, _ in chunk)))
                    box = reduce(united, (box for _, box in chunk))
                    inside = Counter(_tokens(_text_under(page.text, box)))
                words += own.total()
                under += (own & inside).total()
    return {"words_under_boxes": round(under / words, 3)} if words else {}


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
