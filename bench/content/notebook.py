"""Figures of the extractor of notebooks over a corpus."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.content.corpus import files
from content.extractors.notebook import extract
from runtime.errors import Poison

__all__ = ["figures"]


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Share of the raw bytes that remains, share of verbatim code cells, and processor time."""
    raw_bytes = rendered_bytes = cells = verbatim = empty = 0
    seconds = 0.0
    paths = files(corpus, "notebook")
    for path in paths:
        raw = path.read_bytes()
        start = time.process_time()
        try:
            rendition = extract(raw)
        except Poison:
            empty += 1
            continue
        seconds += time.process_time() - start
        raw_bytes += len(raw)
        text = "\n".join(rendition.lines)
        rendered_bytes += len(text.encode())
        empty += not text
        for lines in _code_cells(json.loads(raw)):
            cells += 1
            verbatim += _is_run(lines, rendition.lines)
    counts = {"notebooks": len(paths), "notebooks without text": empty, "code cells": cells}
    if raw_bytes:
        counts["notebook bytes"] = raw_bytes
    return {
        **counts,
        **({"rendered share of them": round(rendered_bytes / raw_bytes, 3)} if raw_bytes else {}),
        **({"code cells verbatim": round(verbatim / cells, 3)} if cells else {}),
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
