"""Figures of the extractor of sheets over a corpus."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

from lxml import etree  # type: ignore[import-untyped]

from content.extractors.sheets import extract
from content.rendition import Rendition
from runtime.errors import Poison

__all__ = ["figures"]

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_BORDER = re.compile(r"(?<!\\)\|")


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Compare the workbooks and files of values of a corpus with their XML and ``expected.json``.

    ``cells`` is the share of the cells with a text or a number, merged ones counted once, that
    stand in the row of their number. ``row_lines`` is the largest number of lines that differ when
    one cell differs.
    """
    rows: list[dict[str, Any]] = json.loads((corpus / "expected.json").read_text("utf-8"))
    files = sorted([*(corpus / "xlsx").glob("*.*"), *(corpus / "csv").glob("*.csv")])
    expected = {row["file"]: row for row in rows if row["file"].startswith(("xlsx/", "csv/"))}
    right = cells = shown = headers = headers_right = 0
    seconds = 0.0
    for file in files:
        row = expected.get(f"{file.parent.name}/{file.name}", {})
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
        "files": len(files),
        "outcomes as expected": right,
        "cells": cells,
        "cells in their row": round(shown / cells, 4) if cells else 0.0,
        "headers as expected": f"{headers_right} of {headers}",
        "ms a file": round(1000 * seconds / len(files), 1) if files else 0.0,
    }


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
