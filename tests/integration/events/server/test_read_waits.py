"""Reads that wait on Redis, and their early end."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from events.names import GROUPS, Topic
from events.server.acl import Role
from events.server.connection import connect
from events.server.read_waits import are_endable, end_reads
from tests.support.crashable_redis import CrashableRedis
from tests.support.doors import NAMES, open_doors
from tests.support.waiting import eventually

QUERIES = NAMES.stream(Topic.QUERY)
GROUP = GROUPS[Topic.QUERY]
HOUR_MS = 3_600_000


async def test_a_consumer_ends_its_waiting_read(own_redis: CrashableRedis) -> None:
    """A read of an hour returns no entries once it is ended; the next one receives some."""
    doors = await open_doors(own_redis.url)
    for role in (Role.WORKER, Role.ANSWERER):
        async with connect(doors.url(role), blocking=True, endable=True) as client:
            assert not are_endable(client)  # it is not known before the first connection
            await client.xgroup_create(QUERIES, f"{GROUP} {role}", id="$", mkstream=True)
            reading = partial(
                client.xreadgroup, f"{GROUP} {role}", "here", {QUERIES: ">"}, block=HOUR_MS
            )
            read: asyncio.Future[Any] = asyncio.ensure_future(reading())

            async def has_ended(read: asyncio.Future[Any] = read) -> bool:
                await end_reads(client)
                return read.done()

            await eventually(has_ended, "the read has ended")
            assert not await read
            assert are_endable(client)
            async with connect(doors.admin_url) as admin:
                await admin.xadd(QUERIES, {"event": "{}"})
            assert await reading()


async def test_a_user_without_the_permission_waits_as_before(own_redis: CrashableRedis) -> None:
    """Users that an earlier version created may read, but not end reads."""
    doors = await open_doors(own_redis.url)
    async with connect(doors.url(Role.PUBLISHER), blocking=True, endable=True) as client:
        await client.ping()
        assert not are_endable(client)
