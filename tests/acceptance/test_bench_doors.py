"""``headrace bench doors`` with few questions: every way to ask works, and has a figure."""

from __future__ import annotations

import pytest

from bench import doors
from tests.support.cli import Cli


async def test_every_way_to_ask_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in {"QUESTIONS": 2, "WARM_UP": 1, "ASKERS": 8, "STARTS": 1}.items():
        monkeypatch.setattr(doors, name, count)
    report = await doors.measure(chunks=1, seconds=0.2)
    figures = report.figures
    ways = ("stream", "bare", "http", "mcp_http", "page")
    milliseconds = {name: figures[f"{name}_p50_ms"] for name in ways}
    assert all(isinstance(value, float) and value > 0 for value in milliseconds.values())
    ratios = {f"{name}_ratio" for name in (*ways[1:], "http_bare", "mcp_start")}
    assert ratios <= figures.keys()
    assert figures["askers"] == 8
    for load in ("load", "full_load"):
        assert figures[f"{load}_failures"] == 0
        assert float(figures[f"{load}_answers"]) >= 8
    assert 5_000 < float(figures["page_bytes"]) < 40_000


async def test_sizes_are_for_doors_alone() -> None:
    assert (
        "leave --seconds and --chunks out"
        in (await Cli({})("bench", "lanes", "--chunks", "9")).line
    )
