"""Figures of the extractor of HTML over a corpus of pages."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from selectolax.lexbor import LexborHTMLParser, LexborNode

from bench.content.corpus import expected_rows, f1, files, number_of_shared, truth_of
from content.extractors.html import extract
from content.rendition import Rendition
from runtime.errors import Poison

__all__ = ["figures"]

_GENERATORS = {
    "python": ".sphinxsidebar",
    "git": "meta[content^=AsciiDoc], meta[content^=Asciidoctor]",
    "pg": ".navfooter",
}
"""Sign of the pages of Sphinx, AsciiDoc and DocBook, by the project whose pages were the first."""
_MAIN = {"python": "[role=main]", "git": "body", "pg": "body"}
_MAIN_OF_OTHERS = ("main", "[role=main]", "article", "body")
_AROUND = ".related, .sphinxsidebar, .footer, [role=navigation], .navheader, .navfooter, #footer"
_FEWEST_CHARACTERS = 12
_FENCE = re.compile(r"(`{3,})")
_HEADING = re.compile(r"#{1,6} (.*)")
_CELL_BORDER = re.compile(r"(?<!\\)\|")


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Shares of code lines, headings and cells in the renditions, and processor time of a page.

    Pages are grouped by their generator. ``article word F1`` compares the words of pages that have
    their true text in a ``.txt`` beside them; ``source words kept`` is the share of the words of a
    page's reST source, in a ``.rst.txt`` beside it, that its rendition has.
    """
    expected = expected_rows(corpus)
    groups: defaultdict[str, list[Path]] = defaultdict(list)
    renditions: dict[Path, Rendition] = {}
    figures: dict[str, float | int | str] = {}
    seconds = 0.0
    for page in files(corpus, "html"):
        raw = page.read_bytes()
        start = time.process_time()
        try:
            renditions[page] = extract(raw)
        except Poison:
            continue
        seconds += time.process_time() - start
        groups[_generator(raw)].append(page)
    for generator, pages in sorted(groups.items()):
        own = [(page, renditions[page]) for page in pages]
        figures |= {f"{generator} {name}": value for name, value in _rows(own, generator)}
    if renditions:
        figures["ms a page"] = round(1_000 * seconds / len(renditions), 1)
    return figures | dict(_truths(renditions, expected))


def _generator(raw: bytes) -> str:
    tree = LexborHTMLParser(raw)
    return next(
        (name for name, sign in _GENERATORS.items() if tree.css_first(sign) is not None), "other"
    )


def _rows(
    pages: Sequence[tuple[Path, Rendition]], generator: str
) -> Iterator[tuple[str, float | int]]:
    counts: Counter[str] = Counter()
    selectors = [_MAIN[generator]] if generator in _MAIN else _MAIN_OF_OTHERS
    for page, rendition in pages:
        counts += _counts(page.read_bytes(), rendition, selectors)
    yield "pages", len(pages)
    for part in ("code lines", "headings", "cells", "words"):
        if counts[part]:
            yield part, round(counts[f"{part} kept"] / counts[part], 3)
    yield "lines of navigation", counts["lines of navigation"]


def _truths(
    renditions: Mapping[Path, Rendition], expected: Mapping[Path, Mapping[str, Any]]
) -> Iterator[tuple[str, float]]:
    """Compare the words of pages with their true texts; each page counts the same."""
    articles: list[float] = []
    kept: list[float] = []
    for page, rendition in renditions.items():
        own = _words("\n".join(rendition.lines))
        row = expected.get(page, {})
        source = truth_of(page, row, ".rst.txt")
        article = None if source else truth_of(page, row, ".txt")
        if source is not None:
            words = _words(source.read_text("utf-8"))
            kept.append(number_of_shared(own, words) / max(1, len(words)))
        if article is not None:
            words = _words(article.read_text("utf-8"))
            articles.append(f1(number_of_shared(own, words), len(own), len(words)))
    if articles:
        yield "article word F1", round(fmean(articles), 3)
    if kept:
        yield "source words kept", round(fmean(kept), 3)


def _counts(raw: bytes, rendition: Rendition, selectors: Sequence[str]) -> Counter[str]:
    """Count the parts of a page, and those of them that its rendition has."""
    tree = LexborHTMLParser(raw)
    around = {node.mem_id for node in tree.css(_AROUND)}
    main = next(filter(None, map(tree.css_first, selectors)), None)
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
