"""Acceptance of the extraction of all kinds: every figure of a corpus, and its goal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.content.process import figures_of
from bench.content.registry import MEASUREMENTS, rows
from bench.figures import Report, Row
from runtime.errors import Unavailable, UsageError

__all__ = ["measure"]

_FORM = (
    "name a folder with documents (.pdf, .html, .docx, ...), and optionally expected.json, as in "
    "`headrace bench content DIR`"
)


async def measure(corpora: Sequence[Path], show: Callable[[str], None]) -> Report:
    """Measure each kind of the only one of ``corpora`` in a process of its own.

    A measurement that fails fails its rows. ``show`` is called with what is measured next.

    Raises:
        UsageError: not exactly one corpus is named, or it is not a folder with files.
    """
    if len(corpora) != 1:
        raise UsageError(f"{len(corpora)} corpora are given, but one is measured", _FORM)
    corpus = corpora[0]
    if not corpus.is_dir() or not any(path.is_file() for path in corpus.rglob("*")):
        raise UsageError(f"{corpus} is not a folder with files", _FORM)
    figures: dict[str, float | str] = {}
    table: list[Row] = []
    for name in MEASUREMENTS:
        show(f"measuring {name}")
        own, reason = await _figures(name, corpus)
        figures |= {f"{name}: {figure}": value for figure, value in own.items()}
        table += rows(name, own, reason)
    return Report("content", figures, table)


async def _figures(name: str, corpus: Path) -> tuple[Mapping[str, float | str], str]:
    """Figures of a measurement, or the reason why there are none."""
    try:
        return await figures_of(name, corpus), ""
    except Unavailable as error:
        return {}, error.message
