"""Progress of long work as plain lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from gateway import progress
from gateway.progress import _Amounts, _Bars, _Lines


class Clock:
    """Clock that moves only when a test sets it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Clock of the progress lines."""
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def test_concurrent_work_is_reported_at_intervals(clock: Clock) -> None:
    """Each kind of work is reported every few seconds, and a total only if it is given."""
    written = io.StringIO()
    show = _Lines(Console(file=written, width=100))
    for second in range(13):
        clock.now = 100.0 + second
        show("built", second, 1_000)
        show("embedded", 384 * second, 0)
    assert written.getvalue().splitlines() == [
        "built: 5 of 1,000, 1/s, 995 s left",
        "embedded: 1,920, 384/s",
        "built: 10 of 1,000, 1/s, 990 s left",
        "embedded: 3,840, 384/s",
    ]


def test_the_end_of_work_is_reported_immediately(clock: Clock) -> None:
    written = io.StringIO()
    show = _Lines(Console(file=written, width=100))
    show("built", 1, 2)
    show("built", 2, 2)
    assert written.getvalue() == "built: 2 of 2\n"


def test_lines_name_the_unit_and_count_chunks_a_second(clock: Clock) -> None:
    """Lines give files and chunks per second; the time left follows from the files."""
    written = io.StringIO()
    show = _Lines(Console(file=written, width=100))
    show("searchable by keyword", 0, 500, unit="files", chunks=0)
    clock.now += 5
    show("searchable by keyword", 250, 500, unit="files", chunks=4_000)
    show("searchable by vector", 1_000, 4_000, unit="chunks")
    clock.now += 5
    show("searchable by vector", 1_500, 4_000, unit="chunks")
    assert written.getvalue().splitlines() == [
        "searchable by keyword: 250 of 500 files, 4,000 chunks, 800/s, 5 s left",
        "searchable by vector: 1,500 of 4,000 chunks, 100/s, 25 s left",
    ]


def test_one_document_is_no_plural() -> None:
    """A total of one takes the unit without its s."""
    written = io.StringIO()
    show = _Lines(Console(file=written, width=100))
    show("searchable by keyword", 1, 1, unit="documents", chunks=1)
    assert written.getvalue() == "searchable by keyword: 1 of 1 document, 1 chunk\n"


def test_a_bar_shows_what_is_searchable(clock: Clock) -> None:
    """Each kind of work has one bar, without a total if there is none."""
    console = Console(file=io.StringIO(), width=120)
    bars = Progress(_Amounts(), console=console)
    show = _Bars(bars)
    show("searchable by keyword", 0, 500, unit="files", chunks=0)
    show("searchable by vector", 0, 0, unit="chunks")
    clock.now += 2
    show("searchable by keyword", 312, 500, unit="files", chunks=4_812)
    show("searchable by vector", 110, 0, unit="chunks")
    with console.capture() as captured:
        console.print(bars.get_renderable())
    assert [line.strip() for line in captured.get().splitlines()] == [
        "312/500 files · 4,812 chunks · 2,406/s",
        "110 chunks · 55/s",
    ]
