"""Tables of a status for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from gateway.output import printable
from gateway.tables import table

__all__ = ["live_tables"]

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
        "in_hand": sum(row["in_hand"].values()),
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
