"""The ledger: outcome of each change by log position.

It shows whether a change is applied. It detects duplicates by log position, never by event id.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar

import asyncpg

from events.names import Lane, LogPosition
from store.postgres.named_queries import named

__all__ = [
    "Entry",
    "HandledChanges",
    "Reach",
    "Share",
    "Verdict",
    "add_costs",
    "applied",
    "applied_of_projects",
    "claimed_by",
    "count_outcomes",
    "divide",
    "first_handled",
    "first_positions",
    "freshness",
    "handled_by_minute",
    "handled_no_later",
    "has_expired",
    "ineffective",
    "outcomes_of",
    "reach",
    "record",
    "rejected",
    "silence_rejections",
    "verdicts_of",
]

_QUERIES = named("ledger")
Payer = TypeVar("Payer", bound=Hashable)
_POSITIONS_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class Reach:
    """The highest position that was handled, by partition and lane.

    ``end``: the highest of these positions and of all revisions of sources.
    """

    handled: Mapping[tuple[int, Lane], int]
    end: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One handled change of a document, and the batch that it belongs to.

    ``detail``: reason of a rejection; else the result of ``claimed_by``, and measures of a change
    in a batch, of which only the sums over the batch count. ``agent`` is '' for a shared document.
    """

    log_position: LogPosition
    event_id: str
    outcome: Literal["indexed", "superseded", "rejected"]
    published_at: datetime | None = None
    detail: dict[str, object] | None = None
    batch: str | None = None
    agent: str | None = None
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of the change at a log position.

    ``claimant``: SHA-256 (hex) of the event if it was applied from another position, as a redrive
    does. It is None if the event at the position itself was applied.
    """

    outcome: str
    claimant: str | None

    def takes(self, event: bytes) -> bool:
        """Return whether an event at the position is the one that was applied."""
        if self.outcome == "rejected":
            return False
        return self.claimant in (None, hashlib.sha256(event).hexdigest())


async def verdicts_of(
    connection: asyncpg.Connection, project_id: int, log_positions: Collection[LogPosition]
) -> dict[LogPosition, Verdict]:
    """Verdicts on changes by log position; changes without an entry are absent."""
    verdicts: dict[LogPosition, Verdict] = {}
    for batch in _batches(log_positions):
        rows = await connection.fetch(_QUERIES["verdicts"], project_id, *_columns(batch))
        verdicts |= {_position(row): Verdict(row["outcome"], row["claimant"]) for row in rows}
    return verdicts


async def applied_of_projects(
    connection: asyncpg.Connection, positions: Sequence[tuple[int, LogPosition]]
) -> dict[tuple[int, LogPosition], str | None]:
    """``applied`` for positions in several projects, each after its project's id.

    The connection needs no scope.
    """
    rows = await connection.fetch(
        _QUERIES["verdicts_of_projects"],
        [project_id for project_id, _ in positions],
        *_columns([log_position for _, log_position in positions]),
    )
    return {
        (row["project_id"], _position(row)): row["claimant"]
        for row in rows
        if row["outcome"] != "rejected"
    }


async def outcomes_of(
    connection: asyncpg.Connection, project_id: int, log_positions: Collection[LogPosition]
) -> dict[LogPosition, str]:
    """Outcomes of changes by log position; changes without an entry are absent."""
    verdicts = await verdicts_of(connection, project_id, log_positions)
    return {log_position: verdict.outcome for log_position, verdict in verdicts.items()}


async def applied(
    connection: asyncpg.Connection, project_id: int, log_positions: Collection[LogPosition]
) -> dict[LogPosition, str | None]:
    """Return the positions whose changes are applied or superseded, with the claimant.

    Rejected changes are not included, because they may be redriven.
    """
    verdicts = await verdicts_of(connection, project_id, log_positions)
    return {
        log_position: verdict.claimant
        for log_position, verdict in verdicts.items()
        if verdict.outcome != "rejected"
    }


async def rejected(connection: asyncpg.Connection, project_id: int) -> set[LogPosition]:
    """Log positions of the changes that were dead-lettered."""
    rows = await connection.fetch(_QUERIES["rejected"], project_id)
    return {_position(row) for row in rows}


async def ineffective(
    connection: asyncpg.Connection, project_id: int, generation_id: int
) -> set[LogPosition]:
    """Log positions of the rejected changes that no document of a generation results from."""
    rows = await connection.fetch(_QUERIES["ineffective"], project_id, generation_id)
    return {_position(row) for row in rows}


async def has_expired(
    connection: asyncpg.Connection, project_id: int, log_position: LogPosition
) -> bool:
    """Return whether the entry of a change has expired, which was applied or superseded."""
    values = log_position.partition, log_position.position
    return bool(await connection.fetchval(_QUERIES["has_expired"], project_id, *values))


async def silence_rejections(
    connection: asyncpg.Connection, project_id: int, log_positions: Collection[LogPosition]
) -> int:
    """Delete the reasons of rejections, which quote the changes; return their number."""
    columns = _columns(log_positions)
    return int(await connection.fetchval(_QUERIES["silence_rejections"], project_id, *columns))


async def handled_no_later(
    connection: asyncpg.Connection,
    project_id: int,
    log_positions: Collection[LogPosition],
    mark: LogPosition,
) -> set[LogPosition]:
    """Return the positions, all in the partition of ``mark``, handled no later than it."""
    positions = [log_position.position for log_position in log_positions]
    rows = await connection.fetch(
        _QUERIES["handled_no_later"], project_id, mark.partition, positions, mark.position
    )
    return {LogPosition(row["position"], mark.partition) for row in rows}


async def first_handled(connection: asyncpg.Connection, project_id: int) -> int | None:
    """The lowest position in the ledger. Returns None if the ledger is empty."""
    position: int | None = await connection.fetchval(_QUERIES["first_handled"], project_id)
    return position


async def first_positions(
    connection: asyncpg.Connection, project_id: int, event_ids: Sequence[str]
) -> dict[str, int]:
    """First log position of handled events, by event id."""
    rows = await connection.fetch(_QUERIES["first_positions"], project_id, event_ids)
    return {row["event_id"]: row["position"] for row in rows}


async def count_outcomes(connection: asyncpg.Connection, project_id: int) -> dict[str, int]:
    """Number of entries by outcome."""
    rows = await connection.fetch(_QUERIES["count_outcomes"], project_id)
    return {row["outcome"]: row["entries"] for row in rows}


async def freshness(
    connection: asyncpg.Connection, project_id: int
) -> tuple[float | None, float | None]:
    """Median and 99th percentile of the time from publish to searchable by keyword, in ms.

    Of the last 1,000 applied changes; None if there are none.
    """
    row = await connection.fetchrow(_QUERIES["freshness"], project_id)
    return row["p50_ms"], row["p99_ms"]


async def reach(connection: asyncpg.Connection, project_id: int) -> Reach:
    """Highest positions of a project that were handled."""
    rows = await connection.fetch(_QUERIES["highest"], project_id)
    handled = {
        (row["partition"], Lane.LIVE if row["is_live"] else Lane.BULK): row["position"]
        for row in rows
    }
    revision = await connection.fetchval(_QUERIES["highest_revision"], project_id)
    return Reach(handled, max([revision, *handled.values()]))


@dataclass
class Share:
    """One payer's part of the texts sent to a model, and of their cost."""

    texts: int = 0
    tokens: float = 0.0
    cost_usd: float = 0.0


def divide(
    texts: Mapping[bytes, str], payers: Mapping[bytes, Payer], tokens: int, cost_usd: float
) -> dict[Payer, Share]:
    """Divide a total among payers by length of text, as models report totals only.

    ``texts`` and ``payers`` are by content hash.
    """
    total = sum(map(len, texts.values())) or 1
    shares: defaultdict[Payer, Share] = defaultdict(Share)
    for content_hash, text in texts.items():
        share = shares[payers[content_hash]]
        share.texts += 1
        share.tokens += tokens * len(text) / total
        share.cost_usd += cost_usd * len(text) / total
    return shares


async def add_costs(
    connection: asyncpg.Connection,
    project_id: int,
    generation_id: int,
    costs: Mapping[LogPosition, tuple[float, float]],
) -> None:
    """Add tokens and US dollars that were spent on vectors of changes to the sums of batches.

    The sum for a batch is added to the measures of one of these changes: every entry that is
    updated is written again, with its index entries. Costs of changes without a batch are not
    counted.
    """
    rows = await connection.fetch(
        _QUERIES["live_batches"], project_id, generation_id, *_columns(costs)
    )
    by_batch: defaultdict[str, list[LogPosition]] = defaultdict(list)
    for row in rows:
        by_batch[row["batch"]].append(_position(row))
    for log_positions in by_batch.values():
        tokens = sum(costs[log_position][0] for log_position in log_positions)
        cost_usd = sum(costs[log_position][1] for log_position in log_positions)
        first = log_positions[0]
        await connection.execute(
            _QUERIES["add_costs"], project_id, first.partition, first.position, tokens, cost_usd
        )


def claimed_by(event_sha256: str | None) -> dict[str, object] | None:
    """Detail of a change that was applied from another position; None if it was not."""
    return None if event_sha256 is None else {"claimant": event_sha256}


async def record(
    connection: asyncpg.Connection, project_id: int, entries: Sequence[Entry]
) -> set[LogPosition]:
    """Write entries; existing entries are kept, except rejections, which are replaced.

    Returns the positions that were written.
    """
    rows = [
        (
            entry.log_position.partition,
            entry.log_position.position,
            entry.event_id,
            entry.outcome,
            entry.published_at,
            None if entry.detail is None else json.dumps(entry.detail),
            entry.batch,
            entry.agent,
            entry.uri,
        )
        for entry in sorted(entries, key=lambda entry: entry.log_position)
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    recorded = await connection.fetch(_QUERIES["record"], project_id, *columns)
    return {_position(row) for row in recorded}


def _batches(log_positions: Collection[LogPosition]) -> Iterator[Sequence[LogPosition]]:
    every = list(log_positions)
    for start in range(0, len(every), _POSITIONS_AT_ONCE):
        yield every[start : start + _POSITIONS_AT_ONCE]


def _columns(log_positions: Collection[LogPosition]) -> tuple[list[int], list[int]]:
    return (
        [log_position.partition for log_position in log_positions],
        [log_position.position for log_position in log_positions],
    )


def _position(row: Mapping[str, Any]) -> LogPosition:
    return LogPosition(row["position"], row["partition"])


@dataclass(frozen=True, slots=True)
class HandledChanges:
    """Number of changes of one project that were handled in one minute with equal freshness.

    ``freshness_ms``: time from publish to searchable, rounded to 2 %; None if the publishing time
    is unknown, or if the change was not indexed.
    """

    minute: datetime
    changes: int
    freshness_ms: float | None


async def handled_by_minute(
    connection: asyncpg.Connection, project_id: int, since: datetime, until: datetime
) -> list[HandledChanges]:
    """Count the changes of a project between two times, by minute and freshness."""
    rows = await connection.fetch(_QUERIES["handled_by_minute"], project_id, since, until)
    return [HandledChanges(row["minute"], row["changes"], row["freshness_ms"]) for row in rows]
