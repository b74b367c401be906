"""Figures of the extractor of notebooks over a corpus."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from content.extractors.notebook import extract

__all__ = ["figures"]


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Share of the raw bytes that remains, share of verbatim code cells, and processor time.

    Args:
        corpus: folder with notebooks in ``notebooks/``.
    """
    raw_bytes = rendered_bytes = cells = verbatim = empty = 0
    seconds = 0.0
    paths = sorted((corpus / "notebooks").glob("*.ipynb"))
    for path in paths:
        raw = path.read_bytes()
        start = time.process_time()
        rendition = extract(raw)
        seconds += time.process_time() - start
        raw_bytes += len(raw)
        text = "\n".join(rendition.lines)
        rendered_bytes += len(text.encode())
        empty += not text
        for lines in _code_cells(json.loads(raw)):
            cells += 1
            verbatim += _is_run(lines, rendition.lines)
    return {
        "notebooks": len(paths),
        "notebooks without text": empty,
        "notebook bytes": raw_bytes,
        "rendered share of them": round(rendered_bytes / max(1, raw_bytes), 3),
        "code cells": cells,
        "code cells verbatim": round(verbatim / max(1, cells), 3),
        "notebook ms a document": round(1_000 * seconds / max(1, len(paths)), 1),
    }


def _code_cells(notebook: dict[str, Any]) -> Iterator[Sequence[str]]:
    sheets = notebook.get("worksheets", [])
    cells = notebook.get("cells") or [cell for sheet in sheets for cell in sheet["cells"]]
    for cell in cells:
        source = cell.get("source", cell.get("input", ""))
        text = source if isinstance(source, str) else "".join(source)
        if cell.get("cell_type") == "code" and text.strip():
            yield text.strip("\n").split("\n")


def _is_run(lines: Sequence[str], rendered: Sequence[str]) -> bool:
    """True if ``lines`` follow each other in ``rendered``."""
    first, count = lines[0], len(lines)
    return any(
        line == first and list(rendered[row : row + count]) == list(lines)
        for row, line in enumerate(rendered)
    )
