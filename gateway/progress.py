"""How long work comes along: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from gateway.output import stderr

__all__ = ["ShowProgress", "progress"]

ShowProgress = Callable[[str, int, int], None]
"""Told what is being done, how many are done, and of how many (0: nobody knows)."""

_LINE_EVERY_SECONDS = 5.0


@contextmanager
def progress() -> Iterator[ShowProgress]:
    """Shows counts, rate and the time left, on stderr."""
    console = stderr()
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=not sys.stdout.isatty()) as bars:
        yield _Bars(bars)


class _Rate(ProgressColumn):
    """How many in a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s", style="dim")


class _Bars:
    """A bar for each kind of work."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._ids = dict[str, int]()

    def __call__(self, what: str, done: int, total: int) -> None:
        if what not in self._ids:
            self._ids[what] = self._bars.add_task(what, total=total or None)
        task = next(one for one in self._bars.tasks if one.id == self._ids[what])
        self._bars.update(task.id, completed=done, total=total or None)


class _Lines:
    """A line now and then, and one at the end of each kind of work; several may go on at once."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began_at = dict[str, float]()
        self._told_at = dict[str, float]()

    def __call__(self, what: str, done: int, total: int) -> None:
        now = monotonic()
        began_at = self._began_at.setdefault(what, now)
        told_at = self._told_at.setdefault(what, now)
        ended = 0 < total <= done
        if not ended and now - told_at < _LINE_EVERY_SECONDS:
            return
        self._told_at[what] = now
        if ended:
            del self._began_at[what], self._told_at[what]
        self._console.print(_line(what, done, total, now - began_at))


def _line(what: str, done: int, total: int, seconds: float) -> str:
    counts = f"{what}: {done:,} of {total:,}" if total else f"{what}: {done:,}"
    if seconds < 1:
        return counts
    rate = done / seconds
    left = f", {(total - done) / rate:,.0f} s left" if rate and done < total else ""
    return f"{counts}, {rate:,.0f}/s{left}"
