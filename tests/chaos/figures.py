"""Figures of the chaos tests, a JSON line for each name."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["figures"]


def figures(stats: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Count, median, p99 and largest of each property that tests recorded as a number."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for outcome in ("passed", "failed"):
        for report in stats.get(outcome, ()):
            for name, value in report.user_properties:
                if isinstance(value, int | float):
                    values[name].append(value)
    for name, found in sorted(values.items()):
        found.sort()
        line = {
            "figure": name,
            "count": len(found),
            "p50": _quantile(found, 0.5),
            "p99": _quantile(found, 0.99),
            "max": found[-1],
        }
        yield json.dumps(line)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, -(-len(ordered) * int(share * 100) // 100) - 1)]
