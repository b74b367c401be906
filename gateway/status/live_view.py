"""Repeated status: a live view on a terminal, elsewhere a line per update."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from gateway.output import print_json, printable, table
from runtime.errors import Retryable
from runtime.lifespan import wait_or_stop

__all__ = ["Rates", "line", "live_tables", "watch"]

Look = Callable[[], Awaitable[dict[str, Any]]]
Show = Callable[[dict[str, Any]], None]
_RATES = {"changes_per_s": "documents", "questions_per_s": "queries"}


async def watch(
    look: Look, every: timedelta, stop: asyncio.Event, console: Console, *, json: bool
) -> None:
    """Read and show the status until ``stop`` is set; an outage of Redis is shown as such."""
    if json:
        await _repeat(look, every, stop, print_json)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            await _repeat(look, every, stop, lambda seen: live.update(_view(seen), refresh=True))
    else:
        await _repeat(look, every, stop, lambda seen: console.print(line(seen), markup=False))


async def _repeat(look: Look, every: timedelta, stop: asyncio.Event, show: Show) -> None:
    rates = Rates()
    while not stop.is_set():
        show(await _seen(look, rates))
        await wait_or_stop(stop, every)


async def _seen(look: Look, rates: Rates) -> dict[str, Any]:
    at = datetime.now().astimezone()
    seen: dict[str, Any] = {"at": at.isoformat(timespec="seconds")}
    try:
        status = await look()
    except Retryable as error:
        return {**seen, "unreachable": str(error)}
    return {**seen, **status, **rates.since_last(status["workers"], at)}


@dataclass
class Rates:
    """Changes and questions per second, of all workers, between two updates."""

    _at: datetime | None = None
    _counts: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def since_last(self, workers: list[dict[str, Any]], at: datetime) -> dict[str, float | None]:
        """Rates by name, None at the first call. The counts of a new worker begin at 0."""
        counts: defaultdict[tuple[str, str], float] = defaultdict(float)
        for worker in workers:
            for rate, metric in _RATES.items():
                # in a container, a killed worker and its successor have the same name
                counts[worker["worker"], rate] += _total(worker["metrics"], metric)
        before, self._counts = self._counts, counts
        began, self._at = self._at, at
        if began is None:
            return dict.fromkeys(_RATES)
        seconds = max((at - began).total_seconds(), 0.001)
        more = dict.fromkeys(_RATES, 0.0)
        for key, count in counts.items():
            more[key[1]] += max(0.0, count - before.get(key, 0.0))
        return {rate: round(count / seconds, 1) for rate, count in more.items()}


def _total(metrics: Mapping[str, float], name: str) -> float:
    return sum(value for series, value in metrics.items() if series.startswith(f"{name}{{"))


def line(seen: Mapping[str, Any]) -> str:
    """Format a status as one line."""
    if "unreachable" in seen:
        return printable(f"{seen['at']} {seen['unreachable']}")
    streams = seen["streams"]
    ages = [stream["oldest_unacknowledged_s"] or 0.0 for stream in streams]
    lags = [stream["lag"] for stream in streams]
    parts = [
        f"lag {'unknown' if None in lags else sum(lags)}",
        f"pending {sum(stream['pending'] for stream in streams)}",
        f"oldest {max(ages, default=0.0):.1f} s",
        f"dead {sum(stream['dead_letters'] for stream in streams)}",
        f"workers {len(seen['workers'])}",
        *(f"{_shown(seen[rate])} {rate.removesuffix('_per_s')}/s" for rate in _RATES),
        *(f"warning: {warning}" for warning in seen["warnings"]),
    ]
    return printable(f"{seen['at']} {'; '.join(parts)}")


def _shown(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}"


def _view(seen: dict[str, Any]) -> Group:
    if "unreachable" in seen:
        return Group(Text(line(seen), style="red"))
    rates = ", ".join(f"{_shown(seen[rate])} {rate.removesuffix('_per_s')}/s" for rate in _RATES)
    return Group(Text(f"{seen['at']}  {rates}  (Ctrl-C ends)"), Text(), *live_tables(seen))


_ROLES = 4
_MB = 2**20

Row = Mapping[str, Any]


def live_tables(found: Row) -> Iterator[RenderableType]:
    """Tables of streams, workers, models and providers (if any), then memory and warnings."""
    yield table(found["streams"])
    yield Text()
    if found["workers"]:
        yield table([_worker(worker) for worker in found["workers"]])
    else:
        yield Text("no worker runs")
    for rows in (found["models"], found["providers"]):
        if rows:
            yield Text()
            yield table(rows, leave_out=("reason",))
    yield Text()
    yield Text(_memory(found["memory"]))
    for warning in found["warnings"]:
        yield Text(f"warning: {printable(warning)}", style="yellow")


def _worker(row: Row) -> dict[str, Any]:
    roles: Sequence[str] = row["roles"]
    return {
        "worker": row["worker"],
        "roles": "all" if len(roles) >= _ROLES else ", ".join(roles),
        "version": row["version"],
        "silent_s": row["silent_s"],
        "in_work": sum(row["in_work"].values()),
        "in_flight": sum(row["in_flight"].values()),
        "done": row["done"],
        "retried": row["retried"],
        "dead": row["dead"],
        "MB": None if row["memory_bytes"] is None else row["memory_bytes"] // _MB,
        "lag_ms": round(row["loop_lag_s"] * 1000),
    }


def _memory(memory: Row) -> str:
    used = f"memory of Redis: {memory['used_bytes'] / _MB:,.0f} MB"
    if memory["limit_bytes"] is None:
        return f"{used}, without a limit"
    return f"{used} of {memory['limit_bytes'] / _MB:,.0f} MB ({memory['share']:.0%})"
