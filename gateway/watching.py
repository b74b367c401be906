"""A look again and again: a live view on a terminal, a line each time elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gateway.live_tables import live_tables
from gateway.output import print_json, printable
from runtime.errors import Retryable

__all__ = ["Rates", "line", "watch"]

Look = Callable[[], Awaitable[dict[str, Any]]]
Show = Callable[[dict[str, Any]], None]
_RATES = {"changes_per_s": "documents", "questions_per_s": "queries"}


async def watch(
    look: Look, every: timedelta, stop: asyncio.Event, console: Console, *, json: bool
) -> None:
    """Look and show until ``stop`` is set; a Redis that is away is shown as that."""
    if json:
        await _repeat(look, every, stop, print_json)
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            await _repeat(look, every, stop, lambda found: live.update(_view(found), refresh=True))
    else:
        await _repeat(look, every, stop, lambda found: console.print(line(found), markup=False))


async def _repeat(look: Look, every: timedelta, stop: asyncio.Event, show: Show) -> None:
    rates = Rates()
    while not stop.is_set():
        show(await _seen(look, rates))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(every.total_seconds()):
                await stop.wait()


async def _seen(look: Look, rates: Rates) -> dict[str, Any]:
    at = datetime.now().astimezone()
    seen: dict[str, Any] = {"at": at.isoformat(timespec="seconds")}
    try:
        found = await look()
    except Retryable as error:
        return {**seen, "unreachable": str(error)}
    return {**seen, **found, **rates.since_last(found["workers"], at)}


@dataclass
class Rates:
    """Changes and questions per second, of all workers, from one look to the next."""

    _at: datetime | None = None
    _counts: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def since_last(self, workers: list[dict[str, Any]], at: datetime) -> dict[str, float | None]:
        """By name of the rate; None at the first look. A worker that is new began at 0."""
        counts: defaultdict[tuple[str, str], float] = defaultdict(float)
        for one in workers:
            for rate, metric in _RATES.items():
                # in a container one that was killed and its successor have the same name
                counts[one["worker"], rate] += _total(one["metrics"], metric)
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
    """All of it in one line."""
    if "unreachable" in seen:
        return printable(f"{seen['at']} {seen['unreachable']}")
    streams = seen["streams"]
    ages = [one["oldest_unacknowledged_s"] or 0.0 for one in streams]
    lags = [one["lag"] for one in streams]
    parts = [
        f"lag {'unknown' if None in lags else sum(lags)}",
        f"pending {sum(one['pending'] for one in streams)}",
        f"oldest {max(ages, default=0.0):.1f} s",
        f"dead {sum(one['dead_letters'] for one in streams)}",
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
