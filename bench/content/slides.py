"""Figures of the extractor of slides over a corpus."""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from pathlib import Path
from time import process_time
from typing import Any

from lxml import etree  # type: ignore[import-untyped]

from content.extractors.slides import extract
from runtime.errors import Poison

__all__ = ["figures"]

_TEXT = "{http://schemas.openxmlformats.org/drawingml/2006/main}t"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_SLIDE = re.compile(r"ppt/(?:slides/slide|notesSlides/notesSlide|diagrams/data)\d+\.xml")
_WORD = re.compile(r"\w+")


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Compare the presentations of a corpus with their XML and with ``expected.json``.

    ``words`` is the share of the words of slides, notes and diagrams that the rendition has as
    often as the file. Numbers of slides in notes are the words that it leaves out.
    """
    rows: list[dict[str, Any]] = json.loads((corpus / "expected.json").read_text("utf-8"))
    expected = {row["file"]: row for row in rows if row["file"].startswith("pptx/")}
    files = sorted((corpus / "pptx").glob("*.pptx"))
    right = words = shown = titles = titles_right = 0
    seconds = 0.0
    for file in files:
        row = expected.get(f"pptx/{file.name}", {"outcome": "indexed"})
        started = process_time()
        try:
            rendition = extract(file.read_bytes())
        except Poison as refusal:
            right += type(refusal).__name__ == row["outcome"]
            continue
        finally:
            seconds += process_time() - started
        names = [section.name for section in rendition.sections]
        right += row["outcome"] == "indexed" and row.get("slides", len(names)) == len(names)
        titles += len(row.get("titles", ()))
        headings = {name.partition(": ")[2] for name in names}
        titles_right += sum(title in headings for title in row.get("titles", ()))
        written = _words(file)
        words += written.total()
        shown += (written & Counter(_WORD.findall("\n".join(rendition.lines)))).total()
    return {
        "files": len(files),
        "outcomes and slides as expected": right,
        "titles as expected": f"{titles_right} of {titles}",
        "words": round(shown / words, 4) if words else 0.0,
        "ms a file": round(1000 * seconds / len(files), 1) if files else 0.0,
    }


def _words(file: Path) -> Counter[str]:
    """Count the words of a presentation, read from its XML."""
    words: Counter[str] = Counter()
    with zipfile.ZipFile(file) as archive:
        for name in filter(_SLIDE.fullmatch, archive.namelist()):
            root = etree.fromstring(archive.read(name))
            for older in list(root.iter(_FALLBACK)):
                older.getparent().remove(older)
            for paragraph in root.iter(_TEXT.replace("}t", "}p")):
                text = "".join(run.text or "" for run in paragraph.iter(_TEXT))
                words.update(_WORD.findall(text))
    return words
