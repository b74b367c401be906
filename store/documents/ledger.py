"""The ledger: the outcome of each change. It detects duplicates and answers if one is applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import asyncpg

from events.names import Lane
from events.positions import LogPosition
from store.postgres.named_queries import named

__all__ = ["Entry", "Reach", "applied", "claimed_by", "reach", "record"]

_QUERIES = named("ledger")


@dataclass(frozen=True, slots=True)
class Reach:
    """The highest position that was handled, by partition and lane.

    ``end``: the highest of these positions and of all revisions of sources.
    """

    handled: Mapping[tuple[int, Lane], int]
    end: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One handled change. ``detail``: reason of a rejection, or the result of ``claimed_by``."""

    log_position: LogPosition
    event_id: str
    outcome: Literal["indexed", "superseded", "rejected"]
    published_at: datetime | None = None
    detail: dict[str, object] | None = None


async def applied(
    connection: asyncpg.Connection, project_id: int, log_positions: Sequence[LogPosition]
) -> dict[LogPosition, str | None]:
    """Return the positions whose changes are applied or superseded.

    Rejected changes are not included, because they may be redriven. The value is the SHA-256 (hex)
    of the event if it was applied from another position of the log, as a redrive does. It is None
    if the event at the position itself was applied.
    """
    rows = await connection.fetch(
        _QUERIES["applied"],
        project_id,
        [log_position.partition for log_position in log_positions],
        [log_position.position for log_position in log_positions],
    )
    return {LogPosition(row["position"], row["partition"]): row["claimant"] for row in rows}


async def reach(connection: asyncpg.Connection, project_id: int) -> Reach:
    """Highest positions of a project that were handled."""
    rows = await connection.fetch(_QUERIES["highest"], project_id)
    handled = {
        (row["partition"], Lane.LIVE if row["is_live"] else Lane.BULK): row["position"]
        for row in rows
    }
    revision = await connection.fetchval(_QUERIES["highest_revision"], project_id)
    return Reach(handled, max([revision, *handled.values()]))


def claimed_by(event_sha256: str | None) -> dict[str, object] | None:
    """Detail of a change that was applied from another position; None if it was not."""
    return None if event_sha256 is None else {"claimant": event_sha256}


async def record(connection: asyncpg.Connection, project_id: int, entries: Sequence[Entry]) -> None:
    """Write entries; existing entries are kept, except rejections, which are replaced."""
    rows = [
        (
            entry.log_position.partition,
            entry.log_position.position,
            entry.event_id,
            entry.outcome,
            entry.published_at,
            None if entry.detail is None else json.dumps(entry.detail),
        )
        for entry in sorted(entries, key=lambda entry: entry.log_position)
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    await connection.execute(_QUERIES["record"], project_id, *columns)
