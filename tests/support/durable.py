"""Durable publishing with real servers, and without a worker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
from redis.asyncio import Redis

from events.client.publisher import Publisher, Receipt
from events.client.republisher import Republishing
from events.models import DocumentChange, DocumentChanged
from events.names import Lane, LogPosition, Names, Topic
from events.outbox import KeptEvent
from events.streams.changes import LoggedChange, read_changes
from processors.archiving.archiver import Archiver
from processors.archiving.consumer import LogGroup
from processors.archiving.outbox_relay import OutboxRelay
from runtime.settings import LOCAL_MODEL
from store.archive import Archive
from store.generations.catalog import Projects, Recipe
from store.outbox import PostgresOutbox
from store.postgres.pool import Database
from store.store import Store
from tests.support.archivers import intake

__all__ = ["NAMES", "PROJECT", "Durable", "change", "number_of"]

NAMES = Names()
PROJECT = "docs"
RECIPE = Recipe(LOCAL_MODEL)


def change(uri: str = "a.md", content: str | None = "text", **data: Any) -> DocumentChanged:
    """Change in the project ``docs``."""
    values = {"project": PROJECT, "uri": uri, "content": content, **data}
    return DocumentChanged(data=DocumentChange(**values))


def number_of(receipt: Receipt) -> int:
    """Position of the receipt's change."""
    return LogPosition.from_token(receipt.token).position


@dataclass(frozen=True)
class Durable:
    """Publisher with an outbox, and a relay that republishes events of any age."""

    redis: Redis
    database: Database
    outbox: PostgresOutbox
    publisher: Publisher
    names: Names
    """Its own, since the publisher notes a raise of the number of partitions in them."""

    @classmethod
    def at(cls, redis: Redis, database: Database, **options: Any) -> Durable:
        """Create it with options of the publisher."""
        outbox = PostgresOutbox(database, Projects(database, RECIPE))
        store = Store(database, RECIPE)
        names = Names()
        publisher = Publisher(redis, names, content_store=store, outbox=outbox, **options)
        return cls(redis, database, outbox, publisher, names)

    async def publish(self, event: DocumentChanged, lane: Lane = Lane.LIVE) -> Receipt:
        """Publish one event durably."""
        return await self.publisher.publish(event, lane, durable=True)

    async def keep(self, *events: DocumentChanged, lane: Lane = Lane.LIVE) -> None:
        """Store events in the outbox only, as a publisher that dies before it reaches Redis."""
        await self.outbox.keep(
            [KeptEvent(PROJECT, event.id, lane, 0, event.to_bytes()) for event in events]
        )

    def outbox_relay(self) -> OutboxRelay:
        """Relay that republishes events of any age."""
        return OutboxRelay(Republishing(self.redis, self.names), self.outbox, age=timedelta())

    async def republish(self) -> int:
        """Run the relay once; returns the number of republished events."""
        return await self.outbox_relay().run_once()

    async def archive(self, archive: Archive) -> None:
        """Archive all entries of the streams."""
        group = LogGroup(self.redis, self.names)
        await group.begin()
        archiver = Archiver(self.database, self.names.prefix, group, archive, intake(self.database))
        while await archiver.archive_batch():
            pass

    async def rows(self) -> dict[str, asyncpg.Record]:
        """Rows of the outbox by event id."""
        project_id = await Projects(self.database).find(PROJECT)
        if project_id is None:
            return {}
        async with self.database.scope(project_id) as connection:
            rows = await connection.fetch("select * from outbox")
        return {row["event_id"]: row for row in rows}

    async def execute(self, statement: str, *arguments: object) -> None:
        """Run a statement in the scope of the project."""
        project_id = await Projects(self.database).find(PROJECT)
        assert project_id is not None
        async with self.database.scope(project_id) as connection:
            await connection.execute(statement, *arguments)

    async def log(self) -> list[LoggedChange]:
        """Changes in the streams."""
        return [found.change async for found in read_changes(self.redis, self.names)]

    async def forget(self, event: DocumentChanged) -> None:
        """Delete the trace of an event in Redis, as after a day."""
        await self.redis.delete(self.names.seen(PROJECT, event.id, 0))

    async def length(self, lane: Lane = Lane.LIVE) -> int:
        """Number of entries of a lane's stream."""
        return int(await self.redis.xlen(self.names.stream(Topic.of_lane(lane))))
