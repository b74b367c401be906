"""Figures of the extractor of slides over a corpus."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from pathlib import Path
from time import process_time

from lxml import etree  # type: ignore[import-untyped]

from bench.content.corpus import expected_rows, files
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
    expected = expected_rows(corpus)
    paths = files(corpus, "slides")
    right = words = shown = titles = titles_right = 0
    seconds = 0.0
    for file in paths:
        row = expected.get(file, {"outcome": "indexed"})
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
        "files": len(paths),
        "outcomes and slides as expected": right,
        "titles as expected": f"{titles_right} of {titles}",
        **({"share of titles": round(titles_right / titles, 3)} if titles else {}),
        **({"words": round(shown / words, 4)} if words else {}),
        "ms a file": round(1000 * seconds / len(paths), 1) if paths else 0.0,
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
