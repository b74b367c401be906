"""Figures of the extractor of Word documents over a corpus."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.content.corpus import files
from content.extractors.archives import open_members
from content.extractors.word import extract
from content.extractors.xml_tree import Element, local_name, parse_xml
from content.rendition import Rendition
from runtime.errors import Poison

__all__ = ["figures"]

_HEADING_STYLE = re.compile(r"heading\s?\d", re.IGNORECASE)
_CELL_BORDER = re.compile(r"(?<!\\)\|")
_LEFT_OUT = frozenset({"del", "moveFrom", "Fallback"})


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Shares of words, cells and headings in the renditions, and processor time of a document."""
    counts: Counter[str] = Counter()
    seconds = 0.0
    paths = files(corpus, "word")
    for path in paths:
        raw = path.read_bytes()
        start = time.process_time()
        try:
            rendition = extract(raw)
        except Poison as error:
            counts[f"refused as {error.code}"] += 1
            continue
        finally:
            seconds += time.process_time() - start
        counts += _counts(raw, rendition)
    shares = {
        f"word {part}": round(counts[f"{part} kept"] / counts[part], 3)
        for part in ("words", "cells", "headings")
        if counts[part]
    }
    refusals = {name: count for name, count in counts.items() if name.startswith("refused")}
    pace = round(1_000 * seconds / max(1, len(paths)), 1)
    return {"word documents": len(paths), **shares, **refusals, "word ms a document": pace}


def _counts(raw: bytes, rendition: Rendition) -> Counter[str]:
    """Count the parts of a document, and those of them that its rendition has."""
    root = parse_xml(open_members(raw).read("word/document.xml"))
    kept = Counter(_words("\n".join(rendition.lines)))
    headings = {_words(line.lstrip("# ")) for line in rendition.lines if line.startswith("#")}
    cells = {
        _words(cell)
        for line in rendition.lines
        if line.startswith("|")
        for cell in _CELL_BORDER.split(line)
    }
    truth = Counter(_words("\n".join(_text(paragraph) for paragraph in _named(root, "p"))))
    counts = Counter(words=truth.total())
    counts["words kept"] = (truth & kept).total()
    for cell in _named(root, "tc"):
        words = _words(" ".join(_text(paragraph) for paragraph in _named(cell, "p")))
        if words and next(_named(cell, "tbl"), None) is None:
            counts["cells"] += 1
            counts["cells kept"] += words in cells
    for paragraph in _named(root, "p"):
        words = _words(_text(paragraph))
        if words and _HEADING_STYLE.fullmatch(_style(paragraph)):
            counts["headings"] += 1
            counts["headings kept"] += words in headings
    return counts


def _text(paragraph: Element) -> str:
    """Text of a paragraph; that of the boxes in it belongs to their own paragraphs."""
    parts: list[str] = []
    for element in paragraph.iter():
        name = local_name(element)
        if name in {"t", "tab", "br"} and not _is_left_out(element, paragraph):
            parts.append((element.text or "") if name == "t" else " ")
    return "".join(parts)


def _is_left_out(element: Element, paragraph: Element) -> bool:
    for above in element.iterancestors():
        if above is paragraph:
            return False
        if local_name(above) == "p":
            return True
        if local_name(above) in _LEFT_OUT:
            return True
    return False


def _style(paragraph: Element) -> str:
    for style in _named(paragraph, "pStyle"):
        return next((value for key, value in style.attrib.items() if key.endswith("val")), "")
    return ""


def _named(root: Element, name: str) -> Iterator[Element]:
    return (element for element in root.iter() if local_name(element) == name)


def _words(text: str) -> Sequence[str]:
    return tuple(re.findall(r"\w+", text))
