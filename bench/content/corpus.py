"""Corpus of documents: its files by format, and what is known of them.

A corpus is a folder. Its files may have any names and may stand in any subfolder, except those of
formats that have no suffix of their own: descriptions of APIs stand in ``openapi/``, conversations
in ``conversation/`` and values in ``csv/`` or ``sheet/``. ``expected.json`` is optional: a list of
objects with ``file``, ``outcome`` (``indexed``, ``empty`` or the name of a refusal), and facts.
"""

from __future__ import annotations

import csv
import json
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "EXPECTED",
    "Grid",
    "expected_rows",
    "f1",
    "files",
    "grids",
    "number_of_shared",
    "truth_of",
]

EXPECTED = "expected.json"
_FOLDERS = {"openapi": ("openapi",), "conversation": ("conversation",), "csv": ("csv", "sheet")}
_SUFFIXES = {
    "book": (".epub",),
    "csv": (".csv", ".tsv"),
    "email": (".eml", ".mbox"),
    "html": (".html", ".htm", ".xhtml"),
    "notebook": (".ipynb",),
    "openapi": (".json", ".yaml", ".yml"),
    "pdf": (".pdf",),
    "slides": (".pptx",),
    "sheet": (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
    "word": (".docx",),
}

Grid = Sequence[Sequence[str]]
"""Rows of a table, each with its cells."""


def files(corpus: Path, form: str) -> list[Path]:
    """Files of a format, in order. The names are those of the kinds, and ``csv``."""
    suffixes = _SUFFIXES.get(form)
    inside = [corpus / folder for folder in _FOLDERS[form]] if form in _FOLDERS else [corpus]
    return sorted(
        path
        for folder in inside
        for path in folder.rglob("*")
        if path.is_file()
        and path.name != EXPECTED
        and (suffixes is None or path.suffix.lower() in suffixes)
    )


def expected_rows(corpus: Path) -> Mapping[Path, Mapping[str, Any]]:
    """Facts of ``expected.json`` by file; those of missing files are left out."""
    path = corpus / EXPECTED
    if not path.is_file():
        return {}
    rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return {corpus / row["file"]: row for row in rows if (corpus / row["file"]).is_file()}


def truth_of(path: Path, row: Mapping[str, Any], suffix: str) -> Path | None:
    """File with the true text of a document: named by its row, else beside it.

    ``suffix`` is that of the file, such as ``.txt``. Returns None if there is no such file.
    """
    named = row.get("truth", "")
    corpus = path.parents[len(Path(row["file"]).parts) - 1] if named else path.parent
    candidates = [corpus / named] if named.endswith(suffix) else [path.with_suffix(suffix)]
    return next((file for file in candidates if file.is_file()), None)


def number_of_shared(own: Iterable[Hashable], truth: Iterable[Hashable]) -> int:
    """Count what both have, each as often as the one that has it less often."""
    return (Counter(own) & Counter(truth)).total()


def f1(shared: int, own: int, truth: int) -> float:
    """Harmonic mean of precision and recall, from counts; 0 if both sides are empty."""
    return 2 * shared / (own + truth) if own + truth else 0.0


def grids(path: Path) -> list[Grid]:
    """Tables that a document truly has: those of the ``.csv`` files beside it.

    Their names are the document's, with anything after it: ``report.csv``, ``report-2.csv``.
    """
    tables: list[Grid] = []
    for file in sorted(path.parent.iterdir()):
        own = file.suffix == ".csv" and file.stem.startswith(path.stem)
        others = path.parent.glob(f"{path.stem}?*{path.suffix}")
        if own and not any(file.stem.startswith(other.stem) for other in others):
            text = unicodedata.normalize("NFKC", file.read_text("utf-8-sig"))
            tables.append(list(csv.reader(text.splitlines())))
    return tables
