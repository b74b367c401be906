"""Watermark of the log in Postgres, for answers from its replicas.

A replica is behind its primary, and Redis does not know by how much. So indexers note the watermark
in Postgres after its changes. The note follows them in the write-ahead log: a replica that has the
note has the changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

import structlog

from events.names import Lane, LogPosition
from runtime.errors import MalformedEvent, OperatorError, Unavailable
from runtime.lifespan import wait_or_stop
from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = ["ReadWatermark", "WatermarkNotes", "note_watermark", "noted_watermark"]

log = structlog.get_logger(__name__)

ReadWatermark = Callable[[], Awaitable[Mapping[str, str]]]
"""Reads an entry id by ``lane:partition``: every change up to it is handled."""

_QUERIES = named("watermarks")
_INTERVAL = timedelta(milliseconds=250)
"""Longer than a worker collects acknowledgements before it sends them."""


async def note_watermark(database: Database, watermark: Mapping[str, str]) -> None:
    """Write a watermark, except for positions that are not higher than those noted.

    Raises:
        Unavailable: Postgres cannot be reached.
    """
    positions = [position for position in map(_position, watermark, watermark.values()) if position]
    if positions:
        async with database.connection() as connection:
            await connection.execute(
                _QUERIES["note"],
                [position.partition for position in positions],
                [position.lane is Lane.LIVE for position in positions],
                [position.position for position in positions],
            )


async def noted_watermark(database: Database, read: ReadWatermark) -> dict[str, str]:
    """The watermark of a replica: of the log's one (``read``) and the noted one, the lower.

    Streams without a note have "0-0".

    Raises:
        Unavailable: Postgres or Redis cannot be reached.
    """
    async with database.connection() as connection:
        rows = await connection.fetch(_QUERIES["read"])
    positions = [LogPosition(row["position"], row["partition"]) for row in rows]
    noted = {f"{position.lane}:{position.partition}": position for position in positions}
    return {
        stream: _lower(noted.get(stream), stream, entry_id)
        for stream, entry_id in (await read()).items()
    }


def _lower(noted: LogPosition | None, stream: str, entry_id: str) -> str:
    """Return the lower of a noted position and an entry id of the same stream, as an entry id."""
    if noted is None:
        return "0-0"
    current = _position(stream, entry_id)
    return noted.entry_id if current is None or noted < current else entry_id


def _position(stream: str, entry_id: str) -> LogPosition | None:
    """Position of an entry; None if a publisher gave it an id that is out of range."""
    lane, _, partition = stream.partition(":")
    try:
        return LogPosition.of_entry(Lane(lane), int(partition), entry_id)
    except MalformedEvent:
        return None


class WatermarkNotes:
    """Notes the watermark while changes are handled, at most four times a second.

    Args:
        database: the primary.
        read: reads the watermark of the log.
        count: counts the events that this process has settled, and again when Redis knows it;
            nothing is read while it stays.
    """

    def __init__(self, database: Database, read: ReadWatermark, count: Callable[[], int]) -> None:
        self._database = database
        self._read = read
        self._count = count
        self._noted: Mapping[str, str] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Note the watermark until ``stop`` is set; outages of the servers are tolerated."""
        counted = -1
        while not stop.is_set():
            count = self._count()
            await wait_or_stop(stop, _INTERVAL)
            if count != counted and await self._note():
                counted = count

    async def _note(self) -> bool:
        """Note the watermark if it has changed; returns false if that failed."""
        try:
            watermark = dict(await self._read())
            if watermark != self._noted:
                await note_watermark(self._database, watermark)
        except (Unavailable, OperatorError) as error:
            log.info("watermark.not_noted", error=str(error))
            return False
        self._noted = watermark
        return True
