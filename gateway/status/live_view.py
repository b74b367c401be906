"""Repeated status: a live view on a terminal, elsewhere a line per update."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from events.server.connection import MemoryUse
from gateway.output import print_json, printable, table
from gateway.status import rows
from runtime import metrics
from runtime.errors import Retryable
from runtime.lifespan import wait_or_stop

__all__ = ["Rates", "Update", "line", "live_tables", "watch"]

_RATES = {"changes_per_s": metrics.CHANGES, "questions_per_s": metrics.QUESTIONS}


@dataclass(frozen=True)
class Update:
    """One update of the view: a snapshot and its rates, or the reason why there is none."""

    at: str
    snapshot: rows.Snapshot | None = None
    rates: Mapping[str, float | None] = field(default_factory=dict)
    unreachable: str = ""

    def to_json(self) -> dict[str, Any]:
        """Fields as ``status --watch --json`` prints them."""
        if self.snapshot is None:
            return {"at": self.at, "unreachable": self.unreachable}
        return {"at": self.at, **self.snapshot.to_json(), **self.rates}


ReadSnapshot = Callable[[], Awaitable[rows.Snapshot]]
Show = Callable[[Update], None]


async def watch(
    read: ReadSnapshot, every: timedelta, stop: asyncio.Event, console: Console, *, json: bool
) -> None:
    """Read and show the status until ``stop`` is set; an outage of Redis is shown as such."""
    if json:
        await _repeat(read, every, stop, lambda update: print_json(update.to_json()))
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            await _repeat(
                read, every, stop, lambda update: live.update(_view(update), refresh=True)
            )
    else:
        await _repeat(read, every, stop, lambda update: console.print(line(update), markup=False))


async def _repeat(read: ReadSnapshot, every: timedelta, stop: asyncio.Event, show: Show) -> None:
    rates = Rates()
    while not stop.is_set():
        show(await _update(read, rates))
        await wait_or_stop(stop, every)


async def _update(read: ReadSnapshot, rates: Rates) -> Update:
    now = datetime.now().astimezone()
    at = now.isoformat(timespec="seconds")
    try:
        snapshot = await read()
    except Retryable as error:
        return Update(at, unreachable=str(error))
    return Update(at, snapshot, rates.since_last(snapshot.workers, now))


@dataclass
class Rates:
    """Changes and questions per second, of all workers, between two updates."""

    _at: datetime | None = None
    _counts: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def since_last(self, workers: Sequence[rows.Worker], at: datetime) -> dict[str, float | None]:
        """Rates by name, None at the first call. The counts of a new worker begin at 0."""
        counts: defaultdict[tuple[str, str], float] = defaultdict(float)
        for worker in workers:
            for rate, metric in _RATES.items():
                # in a container, a killed worker and its successor have the same name
                counts[worker.worker, rate] += metric.total_in(worker.metrics)
        before, self._counts = self._counts, counts
        began, self._at = self._at, at
        if began is None:
            return dict.fromkeys(_RATES)
        seconds = max((at - began).total_seconds(), 0.001)
        more = dict.fromkeys(_RATES, 0.0)
        for key, count in counts.items():
            more[key[1]] += max(0.0, count - before.get(key, 0.0))
        return {rate: round(count / seconds, 1) for rate, count in more.items()}


def line(update: Update) -> str:
    """Format an update as one line."""
    snapshot = update.snapshot
    if snapshot is None:
        return printable(f"{update.at} {update.unreachable}")
    streams = snapshot.streams
    lags = [stream.lag for stream in streams if stream.lag is not None]
    ages = [stream.oldest_unacknowledged or timedelta() for stream in streams]
    parts = [
        f"lag {sum(lags) if len(lags) == len(streams) else 'unknown'}",
        f"pending {sum(stream.pending for stream in streams)}",
        f"oldest {max(ages, default=timedelta()).total_seconds():.1f} s",
        f"dead {sum(stream.dead_letters for stream in streams)}",
        f"workers {len(snapshot.workers)}",
        *_rates(update),
        *(f"warning: {warning}" for warning in snapshot.warnings),
    ]
    return printable(f"{update.at} {'; '.join(parts)}")


def _rates(update: Update) -> Iterator[str]:
    for name, rate in update.rates.items():
        yield f"{'-' if rate is None else f'{rate:.1f}'} {name.removesuffix('_per_s')}/s"


def _view(update: Update) -> Group:
    if update.snapshot is None:
        return Group(Text(line(update), style="red"))
    head = Text(f"{update.at}  {', '.join(_rates(update))}  (Ctrl-C ends)")
    return Group(head, Text(), *live_tables(update.snapshot))


_ROLES = 4
_MB = 2**20


def live_tables(snapshot: rows.Snapshot) -> Iterator[RenderableType]:
    """Tables of streams, workers, models and providers (if any), then memory and warnings."""
    yield table([rows.stream_row(stream) for stream in snapshot.streams])
    yield Text()
    if snapshot.workers:
        yield table([_worker(worker) for worker in snapshot.workers])
    else:
        yield Text("no worker runs")
    for group in (snapshot.models, snapshot.providers):
        if group:
            yield Text()
            yield table([asdict(row) for row in group], leave_out=("reason",))
    yield Text()
    yield Text(_memory(snapshot.memory))
    for warning in snapshot.warnings:
        yield Text(f"warning: {printable(warning)}", style="yellow")


def _worker(worker: rows.Worker) -> dict[str, Any]:
    """Columns of the table."""
    return {
        "worker": worker.worker,
        "roles": "all" if len(worker.roles) >= _ROLES else ", ".join(worker.roles),
        "version": worker.version,
        "silent_s": worker.silent_s,
        "in_work": sum(worker.in_work.values()),
        "in_flight": sum(worker.in_flight.values()),
        "done": worker.done,
        "retried": worker.retried,
        "dead": worker.dead,
        "MB": None if worker.memory_bytes is None else worker.memory_bytes // _MB,
        "lag_ms": round(worker.loop_lag_s * 1000),
    }


def _memory(memory: MemoryUse) -> str:
    used = f"memory of Redis: {memory.used_bytes / _MB:,.0f} MB"
    if not memory.limit_bytes:
        return f"{used}, without a limit"
    return f"{used} of {memory.limit_bytes / _MB:,.0f} MB ({memory.share:.0%})"
