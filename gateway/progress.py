"""Progress of long work: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from gateway.output import stderr

__all__ = ["KEYWORD", "VECTOR", "ShowProgress", "progress", "show_nothing"]

KEYWORD = "searchable by keyword"
VECTOR = "searchable by vector"

_LINE_EVERY_SECONDS = 5.0
_RATE_AFTER_SECONDS = 1.0


class ShowProgress(Protocol):
    """Callback that shows the progress of one kind of work; several kinds may run concurrently."""

    def __call__(
        self,
        name: str,
        done: int,
        total: int,
        /,
        *,
        unit: str = "",
        chunks: int | None = None,
    ) -> None:
        """Show ``done`` of ``total`` (0: unknown), in ``unit``.

        ``chunks`` is the number of chunks in what is done; if given, the rate is in chunks.
        """
        ...


def show_nothing(*_: object, **__: object) -> None:
    """Show no progress, as a ``ShowProgress``."""


@contextmanager
def progress() -> Iterator[ShowProgress]:
    """Show counts, rate and the time left on stderr."""
    console = stderr()
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        _Amounts(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=not sys.stdout.isatty()) as bars:
        yield _Bars(bars)


@dataclass
class _Work:
    """Figures of one kind of work. Rates exclude what was done before the first call."""

    name: str
    unit: str
    began_at: float
    first_done: int
    first_chunks: int | None
    done: int = 0
    total: int = 0
    chunks: int | None = None
    seconds: float = field(default=0.0)

    def update(self, done: int, total: int, chunks: int | None, now: float) -> None:
        """Store the latest figures."""
        self.done, self.total, self.chunks = done, total, chunks
        self.seconds = now - self.began_at

    @property
    def has_ended(self) -> bool:
        """True if the total is known and done."""
        return 0 < self.total <= self.done

    @property
    def rate(self) -> float | None:
        """Chunks per second if they are counted, else units; None in the first second."""
        if self.seconds < _RATE_AFTER_SECONDS:
            return None
        if self.chunks is not None:
            return (self.chunks - (self.first_chunks or 0)) / self.seconds
        return self._done_per_second

    @property
    def seconds_left(self) -> float | None:
        """Time until all is done at the rate so far. It is None if the rate is unknown."""
        if self.done >= self.total or self.rate is None or not self._done_per_second:
            return None
        return (self.total - self.done) / self._done_per_second

    def amounts(self, separator: str) -> list[str]:
        """Format the done units, ``separator`` and the total; then the chunks."""
        counts = f"{self.done:,}{separator}{self.total:,}" if self.total else f"{self.done:,}"
        is_one = (self.total or self.done) == 1 and len(self.unit) > 1
        unit = self.unit.removesuffix("s") if is_one else self.unit
        parts = [f"{counts} {unit}".rstrip()]
        if self.chunks is None:
            return parts
        return [*parts, f"{self.chunks:,} chunk{'s' * (self.chunks != 1)}"]

    @property
    def _done_per_second(self) -> float:
        return (self.done - self.first_done) / self.seconds


class _Works:
    """Figures of each kind of work by name, from its first call to its end."""

    def __init__(self) -> None:
        self._by_name = dict[str, _Work]()

    def update(self, name: str, done: int, total: int, unit: str, chunks: int | None) -> _Work:
        """Update and return the figures of the work of this name."""
        now = monotonic()
        if name not in self._by_name:
            self._by_name[name] = _Work(name, unit, now, done, chunks)
        work = self._by_name[name]
        work.update(done, total, chunks, now)
        return work

    def forget(self, name: str) -> None:
        """Drop the figures, so that later work of this name starts from zero."""
        self._by_name.pop(name, None)


class _Amounts(ProgressColumn):
    """Counts and rate."""

    def render(self, task: Task) -> Text:
        work: _Work = task.fields["work"]
        rate = [] if work.rate is None else [f"{work.rate:,.0f}/s"]
        return Text(" · ".join([*work.amounts("/"), *rate]))


class _Bars:
    """A bar for each kind of work."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._works = _Works()
        self._ids = dict[str, int]()

    def __call__(
        self, name: str, done: int, total: int, /, *, unit: str = "", chunks: int | None = None
    ) -> None:
        work = self._works.update(name, done, total, unit, chunks)
        if name not in self._ids:
            self._ids[name] = self._bars.add_task(name, total=total or None, work=work)
        task = next(task for task in self._bars.tasks if task.id == self._ids[name])
        self._bars.update(task.id, completed=done, total=total or None)


class _Lines:
    """A line every few seconds, and one at the end of each kind of work."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._works = _Works()
        self._printed_at = dict[str, float]()

    def __call__(
        self, name: str, done: int, total: int, /, *, unit: str = "", chunks: int | None = None
    ) -> None:
        work = self._works.update(name, done, total, unit, chunks)
        now = work.began_at + work.seconds
        printed_at = self._printed_at.setdefault(name, now)
        if not work.has_ended and now - printed_at < _LINE_EVERY_SECONDS:
            return
        self._printed_at[name] = now
        if work.has_ended:
            del self._printed_at[name]
            self._works.forget(name)
        self._console.print(_line(work))


def _line(work: _Work) -> str:
    counts = f"{work.name}: {', '.join(work.amounts(' of '))}"
    if not work.rate:
        return counts
    left = "" if work.seconds_left is None else f", {work.seconds_left:,.0f} s left"
    return f"{counts}, {work.rate:,.0f}/s{left}"
