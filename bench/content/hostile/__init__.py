"""Outcomes of hostile files: generated, of every kind, in the parser processes of a worker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from bench.content.hostile.files import hostile_files
from bench.content.parsers import fates, parser_peak_mb

__all__ = ["figures"]


def figures(_corpus: Path) -> dict[str, float | int | str]:
    """Give all hostile files to parsers; no file of a corpus is needed.

    ``share_indexed_or_refused`` is the share of the files that are indexed, or refused by a check
    or for memory: ``out_of_memory`` counts those that end their parser at its limit, which costs
    no other document its place. ``crashed_files`` names those that end it otherwise, and ``hung``
    counts those that reach the limit of time.
    """
    results = fates(hostile_files().items())
    crashed = [fate.name for fate in results if fate.crashed]
    hung = sum(fate.hung for fate in results)
    return {
        "files": len(results),
        **Counter(fate.outcome for fate in results),
        "hung": hung,
        "crashed": len(crashed),
        "out_of_memory": sum(fate.exhausted_memory for fate in results),
        "share_indexed_or_refused": round(1 - (len(crashed) + hung) / len(results), 3),
        "parser_peak_mb": parser_peak_mb(),
        **({"crashed_files": ", ".join(crashed)} if crashed else {}),
    }
