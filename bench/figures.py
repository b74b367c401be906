"""Report of a measurement, with the machine that it ran on."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

__all__ = ["Ask", "Report", "Row", "in_turn", "percentile"]

Ask = Callable[[str], Awaitable[object]]
"""One way to ask a question."""


def _machine() -> dict[str, str | int]:
    """Describe the machine: figures mean little without processor, cores and versions."""
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
                line.partition(":")[2].strip() for line in lines if line.startswith("model name")
            ]
    except OSError:
        models = []
    return models[0] if models else platform.processor()


@dataclass(frozen=True, slots=True)
class Row:
    """Figure beside its goal.

    ``figure`` and ``met`` are None for a row that was left out; ``reason`` says why it was.
    """

    what: str
    figure: float | str | None
    goal: str
    met: bool | None
    reason: str = ""


@dataclass(frozen=True)
class Report:
    """Named figures of one run; some are names, such as the precision of the model.

    Times have their unit in the name; ratios have none. ``rows`` are the figures with a goal, for
    a measurement that has goals. ``columns`` are figures by system, for one that compares systems.
    """

    name: str
    figures: Mapping[str, float | str]
    rows: Sequence[Row] = ()
    columns: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    machine: Mapping[str, str | int] = field(default_factory=_machine)


def percentile(values: Sequence[float], share: int) -> float:
    """Return the value below which ``share`` percent of at least two ``values`` lie."""
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]


async def in_turn(ways: Sequence[Ask], texts: Iterator[str], count: int) -> list[list[float]]:
    """Return milliseconds per question by way; each question is new, so that none is cached."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(count):
        for ask, milliseconds in zip(ways, times, strict=True):
            text = next(texts)
            started = perf_counter()
            await ask(text)
            milliseconds.append((perf_counter() - started) * 1000)
    return times
