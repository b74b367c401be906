"""Figures of the extractor of HTML over a corpus of pages."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from selectolax.lexbor import LexborHTMLParser, LexborNode

from content.extractors.html import extract
from content.rendition import Rendition

__all__ = ["figures"]

_GENERATORS = {"python": "[role=main]", "git": "body", "pg": "body"}
"""Main element of the pages of each generator, by the first part of their file names."""
_AROUND = ".related, .sphinxsidebar, .footer, [role=navigation], .navheader, .navfooter, #footer"
_FEWEST_CHARACTERS = 12
_FENCE = re.compile(r"(`{3,})")
_HEADING = re.compile(r"#{1,6} (.*)")
_CELL_BORDER = re.compile(r"(?<!\\)\|")


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Shares of code lines, headings and cells in the renditions, and processor time of a page.

    Args:
        corpus: folder with pages in ``html/``, whose names begin with their generator.
    """
    rows: dict[str, float | int | str] = {}
    for generator, selector in _GENERATORS.items():
        pages = sorted((corpus / "html").glob(f"{generator}-*.html"))
        if pages:
            rows |= {f"{generator} {name}": value for name, value in _rows(pages, selector)}
    return rows


def _rows(pages: Sequence[Path], selector: str) -> Iterator[tuple[str, float | int]]:
    counts: Counter[str] = Counter()
    seconds = 0.0
    for page in pages:
        raw = page.read_bytes()
        start = time.process_time()
        rendition = extract(raw)
        seconds += time.process_time() - start
        counts += _counts(raw, rendition, selector)
    yield "pages", len(pages)
    for part in ("code lines", "headings", "cells", "words"):
        yield part, round(counts[f"{part} kept"] / max(1, counts[part]), 3)
    yield "lines of navigation", counts["lines of navigation"]
    yield "ms a page", round(1_000 * seconds / len(pages), 1)


def _counts(raw: bytes, rendition: Rendition, selector: str) -> Counter[str]:
    """Count the parts of a page, and those of them that its rendition has."""
    tree = LexborHTMLParser(raw)
    around = {node.mem_id for node in tree.css(_AROUND)}
    main = tree.css_first(selector)
    counts: Counter[str] = Counter()
    if main is None:
        return counts
    code = _code_lines(rendition.lines)
    headings = {_words(match[1]) for line in rendition.lines if (match := _HEADING.match(line))}
    cells = {
        _words(cell)
        for line in rendition.lines
        if line.lstrip().startswith("|")
        for cell in _CELL_BORDER.split(line)
    }
    for block in _outside(main.css("pre"), around):
        lines = [line.rstrip() for line in block.text().split("\n") if line.strip()]
        counts["code lines"] += len(lines)
        counts["code lines kept"] += sum(line in code for line in lines)
    for part, selected, kept in (
        ("headings", "h1, h2, h3, h4, h5, h6", headings),
        ("cells", "table td, table th", cells),
    ):
        for node in _outside(main.css(selected), around):
            words = _words(_text(node, around))
            counts[part] += bool(words)
            counts[f"{part} kept"] += bool(words) and words in kept
    truth_words = _words(_text(main, around))
    truth = Counter(truth_words)
    counts["words"] = truth.total()
    counts["words kept"] = (truth & Counter(_words("\n".join(rendition.lines)))).total()
    own = f" {' '.join(truth_words)} "
    navigation = {line for node in tree.css(_AROUND) for line in _lines(node)}
    rendered = {" ".join(_words(line)) for line in rendition.lines}
    counts["lines of navigation"] = sum(f" {line} " not in own for line in navigation & rendered)
    return counts


def _code_lines(lines: Sequence[str]) -> set[str]:
    """Lines inside fences."""
    code: set[str] = set()
    mark = ""
    for line in lines:
        fence = _FENCE.match(line.lstrip())
        if mark and line.strip() == mark:
            mark = ""
        elif mark:
            code.add(line.rstrip())
        elif fence:
            mark = fence[1]
    return code


def _outside(nodes: Sequence[LexborNode], around: set[int]) -> Iterator[LexborNode]:
    for node in nodes:
        parent: LexborNode | None = node
        while parent is not None and parent.mem_id not in around:
            parent = parent.parent
        if parent is None:
            yield node


def _lines(node: LexborNode) -> Iterator[str]:
    """Yield the texts of an element that are long enough to belong to no sentence by chance."""
    for line in _text(node, set(), "\n").split("\n"):
        words = " ".join(_words(line))
        if len(words) > _FEWEST_CHARACTERS:
            yield words


def _text(node: LexborNode, around: set[int], separator: str = " ") -> str:
    """Text of an element without scripts, permalinks and what stands around the page's text."""
    parts: list[str] = []
    pending = [node.child]
    while pending:
        current = pending.pop()
        if current is None:
            continue
        pending.append(current.next)
        if current.tag == "-text":
            parts.append(current.text_content or "")
        elif (
            current.tag not in {"script", "style"}
            and current.mem_id not in around
            and "headerlink" not in (current.attributes.get("class") or "")
        ):
            pending.append(current.child)
    return separator.join(parts)


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"\w+", text))
