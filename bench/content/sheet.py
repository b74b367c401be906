"""Figures of the extractor of sheets over a corpus."""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import process_time
from typing import Any

from lxml import etree  # type: ignore[import-untyped]

from bench.content.corpus import expected_rows, files
from content.extractors.sheets import extract
from content.rendition import Rendition
from processors.chunking import Source, cut
from runtime.errors import Poison

__all__ = ["figures"]

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_BORDER = re.compile(r"(?<!\\)\|")
_LIMIT_TOKENS = 254


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Compare the workbooks and files of values of a corpus with their XML and ``expected.json``.

    ``cells`` is the share of the cells with a text or a number, merged ones counted once, that
    stand in the row of their number. ``chunks of an edited row`` is the largest number of chunks
    that an edit of one cell changes, in the files of values and in a made one of 300 rows.
    """
    expected = expected_rows(corpus)
    paths = sorted({*files(corpus, "sheet"), *files(corpus, "csv")})
    right = cells = shown = headers = headers_right = 0
    seconds = 0.0
    for file in paths:
        row = expected.get(file, {})
        started = process_time()
        try:
            rendition = extract(file.read_bytes())
        except Poison as refusal:
            right += type(refusal).__name__ == row.get("outcome")
            continue
        finally:
            seconds += process_time() - started
        right += row.get("outcome", "indexed") == ("indexed" if rendition.lines else "empty")
        if "header" in row:
            headers += 1
            label = " | ".join(row["header"])
            headers_right += any(section.label.endswith(label) for section in rendition.sections)
        if file.suffix == ".xlsx":
            by_place = _cells_by_place(rendition)
            for place, cell in _written(file):
                cells += 1
                shown += cell in by_place.get(place, ())
    return {
        "files": len(paths),
        "outcomes as expected": right,
        "cells": cells,
        **({"cells in their row": round(shown / cells, 4)} if cells else {}),
        "headers as expected": f"{headers_right} of {headers}",
        "ms a file": round(1000 * seconds / len(paths), 1) if paths else 0.0,
        "chunks of an edited row": max(map(_changed_chunks, _edits(paths))),
    }


def _edits(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yield tables of values, each before and after an edit of one cell of its middle row."""
    made = [["Item", "Place", "Amount"], *([f"item {n}", f"shelf {n}", str(n)] for n in range(300))]
    tables = [made]
    for path in paths:
        if path.suffix == ".csv":
            with suppress(UnicodeDecodeError, csv.Error):
                tables.append(list(csv.reader(path.read_text("utf-8").splitlines())))
    for table in tables:
        if len(table) > 1 and (row := table[1 + (len(table) - 1) // 2 - 1]):
            before = _written_out(table)
            row[-1] = f"{row[-1]}7"
            yield before, _written_out(table)


def _written_out(table: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(table)
    return text.getvalue()


def _changed_chunks(edit: tuple[str, str]) -> int:
    """Count the chunks after an edit that are not among those before it."""
    before, after = (Counter(_embedded(text)) for text in edit)
    return (after - before).total()


def _embedded(text: str) -> Iterator[str]:
    for chunk in cut(Source("values.csv", text, "sheet"), _LIMIT_TOKENS, _estimated).chunks:
        yield f"{chunk.header}\n{chunk.content}"


def _estimated(texts: Sequence[str]) -> list[int]:
    """Token counts of texts, by four characters for each token."""
    return [-(-len(text) // 4) for text in texts]


def _cells_by_place(rendition: Rendition) -> dict[tuple[int, int], set[str]]:
    """Return the cells of the lines of each row, by the numbers of sheet and row."""
    by_place: dict[tuple[int, int], set[str]] = {}
    for line, index in zip(rendition.lines, rendition.place_of, strict=True):
        place = rendition.places[index]
        numbers = re.findall(r"\d+", place.fragment.rpartition("!")[2])
        parts = [line, *(part.strip().replace("\\|", "|") for part in _BORDER.split(line))]
        by_place.setdefault((place.page or 1, int(numbers[0])), set()).update(parts)
    return by_place


def _written(file: Path) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield sheet, row and value of the cells of a workbook, read from its XML."""
    with zipfile.ZipFile(file) as archive:
        shared = [
            " ".join("".join(text.text or "" for text in item.iter(f"{_MAIN}t")).split())
            for item in _elements(archive, "xl/sharedStrings.xml", "si")
        ]
        sheets = sum(name.startswith("xl/worksheets/sheet") for name in archive.namelist())
        for sheet in range(1, sheets + 1):
            for cell in _elements(archive, f"xl/worksheets/sheet{sheet}.xml", "c"):
                value = cell.findtext(f"{_MAIN}v")
                if not value:
                    continue
                row = int(re.sub(r"\D", "", cell.get("r")))
                text = shared[int(value)] if cell.get("t") == "s" else f"{float(value):.15g}"
                if text:
                    yield (sheet, row), text


def _elements(archive: zipfile.ZipFile, name: str, tag: str) -> Iterator[Any]:
    if name in archive.namelist():
        yield from etree.fromstring(archive.read(name)).iter(f"{_MAIN}{tag}")
