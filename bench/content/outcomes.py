"""Outcome of every file of a corpus, in parser processes, and the facts that are expected of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from bench.content.corpus import expected_rows, files
from bench.content.parsers import Fate, fates, parser_peak_mb
from content.registry import EXTRACTORS, extract
from content.rendition import Rendition

__all__ = ["figures"]

_FORMS = (
    *("book", "conversation", "csv", "email", "html", "notebook", "openapi", "pdf", "sheet"),
    *("slides", "word"),
)
_OPERATION = re.compile(r"[A-Z]+ /")
_CELL_BORDER = re.compile(r"(?<!\\)\|")


def figures(corpus: Path) -> dict[str, float | int | str]:
    """Give every file of a corpus to the parser processes of a worker.

    A crash is an error of the program that a document causes, and a hang is a document that reaches
    the limit of time. ``share_of_facts`` is the share of the facts of ``expected.json`` that are
    true of the extracted documents.
    """
    expected = expected_rows(corpus)
    paths = sorted({*chain.from_iterable(files(corpus, form) for form in _FORMS), *expected})
    tables = {path for path in files(corpus, "pdf") for path in path.parent.glob("*.csv")}
    paths = [path for path in paths if path not in tables]
    results = dict(
        zip(
            paths,
            fates((str(path.relative_to(corpus)), path.read_bytes()) for path in paths),
            strict=True,
        )
    )
    return {
        "files": len(paths),
        **Counter(fate.outcome for fate in results.values()),
        **_shares(results, expected),
        "crashed": sum(fate.crashed for fate in results.values()),
        "hung": sum(fate.hung for fate in results.values()),
        "parser_peak_mb": parser_peak_mb(),
        **_facts(results, expected),
    }


def _shares(
    results: Mapping[Path, Fate], expected: Mapping[Path, Mapping[str, Any]]
) -> dict[str, float]:
    refusals = [fate.refusal for fate in results.values() if fate.refusal is not None]
    right = [results[path].outcome == row["outcome"] for path, row in expected.items()]
    shares = {
        "share_opened_or_refused": _share(
            [not (fate.crashed or fate.hung) for fate in results.values()]
        ),
        "share_as_expected": _share(right),
        "share_with_remedy": _share([bool(refusal.remedy) for refusal in refusals]),
    }
    for kind in ("email", "book"):
        opened = [fate.outcome == "indexed" for fate in results.values() if fate.kind == kind]
        shares[f"share_of_{kind}_opened"] = _share(opened)
    return {name: share for name, share in shares.items() if share is not None}


def _share(outcomes: Sequence[bool]) -> float | None:
    return sum(outcomes) / len(outcomes) if outcomes else None


def _facts(
    results: Mapping[Path, Fate], expected: Mapping[Path, Mapping[str, Any]]
) -> dict[str, float | int | str]:
    """Count the facts of the indexed files, and name those that are false."""
    facts = 0
    false: list[str] = []
    for path, row in expected.items():
        fate = results[path]
        own = [name for name in _CHECKS if name in row]
        if fate.outcome != "indexed" or fate.kind not in EXTRACTORS or not own:
            continue
        rendition = extract(fate.kind, path.read_bytes())
        facts += len(own)
        false += [f"{name} of {fate.name}" for name in own if not _CHECKS[name](rendition, row)]
    if not facts:
        return {}
    return {
        "facts": facts,
        "share_of_facts": round(1 - len(false) / facts, 4),
        **({"false_facts": ", ".join(false)} if false else {}),
    }


def _text(rendition: Rendition) -> str:
    return " ".join(" ".join(rendition.lines).split())


def _has_rows(rendition: Rendition, rows: Mapping[str, Sequence[str]]) -> bool:
    tables = [[cell.strip() for cell in _CELL_BORDER.split(line)[1:-1]] for line in rendition.lines]
    return all(
        any(_begins_with(cells, [first, *others]) for cells in tables)
        for first, others in rows.items()
    )


def _begins_with(cells: Sequence[str], wanted: Sequence[str]) -> bool:
    rest = iter(cells)
    first_is_right = next(rest, None) == wanted[0]
    return first_is_right and all(any(cell == value for cell in rest) for value in wanted[1:])


def _last_cell(rendition: Rendition) -> int:
    """Number of the last cell of a notebook that the rendition shows."""
    fragments = " ".join(place.fragment for place in rendition.places)
    return max((int(cell) for cell in re.findall(r"cell=(\d+)", fragments)), default=0)


def _names(rendition: Rendition) -> list[str]:
    return [section.name for section in rendition.sections]


def _pages(rendition: Rendition) -> set[int]:
    return {place.page for place in rendition.places if place.page is not None}


_CHECKS: Mapping[str, Callable[[Rendition, Mapping[str, Any]], bool]] = {
    "absent": lambda rendition, row: not any(text in _text(rendition) for text in row["absent"]),
    "anchors": lambda rendition, row: (
        {*row["anchors"]} <= {place.fragment for place in rendition.places}
    ),
    "cells": lambda rendition, row: 0 < _last_cell(rendition) <= row["cells"],
    "channels": lambda rendition, row: all(
        any(channel in name for name in _names(rendition)) for channel in row["channels"]
    ),
    "has": lambda rendition, row: all(text in _text(rendition) for text in row["has"]),
    "header": lambda rendition, row: any(
        section.label.endswith(" | ".join(row["header"])) for section in rendition.sections
    ),
    "headings": lambda rendition, row: {*row["headings"]} <= {*_names(rendition)},
    "operations": lambda rendition, row: (
        row["operations"] == sum(_OPERATION.match(name) is not None for name in _names(rendition))
    ),
    "pages": lambda rendition, row: max(_pages(rendition), default=0) <= row["pages"],
    "rows": lambda rendition, row: _has_rows(rendition, row["rows"]),
    "sheets": lambda rendition, row: all(
        any(name.startswith(sheet) for name in _names(rendition)) for sheet in row["sheets"]
    ),
    "slides": lambda rendition, row: len(rendition.sections) == row["slides"],
    "titles": lambda rendition, row: (
        {*row["titles"]} <= {name.partition(": ")[2] for name in _names(rendition)}
    ),
    "warning": lambda rendition, row: any(row["warning"] in text for text in rendition.warnings),
}
"""Checks of the facts in ``expected.json``, by the name of the fact."""
