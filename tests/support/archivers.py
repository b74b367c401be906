"""Archivers without their loop, and the state of their group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from events.client.publisher import Publisher
from events.models import DocumentChange, DocumentChanged
from events.names import ARCHIVER, Lane, Names, Topic
from processors.admission import Admission, KeyRing
from processors.archiving.archiver import Archiver, Intake
from processors.archiving.consumer import LogGroup
from store.archive import Archive
from store.generations.catalog import Projects
from store.generations.document_positions import DocumentPositions
from store.keys.publisher_keys import PublisherKeys
from store.outbox import PostgresOutbox
from store.postgres.pool import Database

__all__ = ["NAMES", "STREAM", "archive_all", "archiver", "intake", "pending", "publish"]

NAMES = Names()
STREAM = NAMES.stream(Topic.of_lane(Lane.LIVE))


def archiver(redis: Redis, worker: Database, archive: Archive) -> tuple[LogGroup, Archiver]:
    """Archiver and group of a newly started process."""
    group = LogGroup(redis, NAMES)
    return group, Archiver(worker, NAMES.prefix, group, archive, intake(worker))


def intake(worker: Database) -> Intake:
    """Intake that admits changes by the keys in the database."""
    projects = Projects(worker)
    key_ring = KeyRing(PublisherKeys(worker, projects).read)
    admission = Admission(key_ring, projects, DocumentPositions(worker))
    return Intake(admission, PostgresOutbox(worker, projects))


async def archive_all(redis: Redis, worker: Database, archive: Archive) -> None:
    """Archive pending entries and all others, as a newly started process does."""
    group, one = archiver(redis, worker, archive)
    await group.begin()
    while await one.archive_batch():
        pass


async def publish(
    redis: Redis, uris: Sequence[str], *, project: str = "alpha", content: str = "text"
) -> None:
    """Publish a change of each document."""
    events = [
        DocumentChanged(data=DocumentChange(project=project, uri=uri, content=f"{content} {uri}"))
        for uri in uris
    ]
    await Publisher(redis, NAMES).publish_many(events)


async def pending(redis: Redis) -> int:
    """Number of entries that are pending for the archiver."""
    reply: Any = await redis.xpending(STREAM, ARCHIVER)
    return int(reply["pending"])
