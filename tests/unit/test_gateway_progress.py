"""Plain lines about long work."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gateway import progress
from gateway.progress import _Lines


class Clock:
    """Stands still unless it is told to go on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What the lines are timed by."""
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def test_work_that_goes_on_at_once_is_told_now_and_then(clock: Clock) -> None:
    """One kind doesn't keep the other from being told, and no total is made up."""
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


def test_the_end_of_work_is_told_at_once(clock: Clock) -> None:
    written = io.StringIO()
    show = _Lines(Console(file=written, width=100))
    show("built", 1, 2)
    show("built", 2, 2)
    assert written.getvalue() == "built: 2 of 2\n"
