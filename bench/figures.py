"""What a measurement reports, and on what machine."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Report", "percentile"]


def _machine() -> dict[str, str | int]:
    """Processor, cores and versions: figures mean little without them."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 -- not a file on disk
            models = [
                one.partition(":")[2].strip() for one in lines if one.startswith("model name")
            ]
    except OSError:
        models = []
    return models[0] if models else platform.processor()


@dataclass(frozen=True)
class Report:
    """Named figures of one run, and names of what was measured.

    Times carry their unit in the name; ratios have none.
    """

    name: str
    figures: Mapping[str, float | str]
    machine: Mapping[str, str | int] = field(default_factory=_machine)


def percentile(values: Sequence[float], share: int) -> float:
    """The value below which ``share`` percent of ``values`` lie (at least two values)."""
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]
