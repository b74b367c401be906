"""Transport under plain Faust, through its plugin namespace, on real Redis."""

from __future__ import annotations

from typing import Any

import faust
from redis.asyncio import Redis

from events.names import GROUPS, Names, Topic
from events.transport import register
from tests.support.waiting import eventually

STREAM = Names().stream(Topic.CHANGED_BULK)


async def test_a_plain_faust_app_runs_on_redis(redis_url: str) -> None:
    """A plain ``faust.App(broker="redis://…")`` reads and acknowledges events."""
    register()
    app = faust.App(
        "stock", broker=redis_url, topic_disable_leader=True, web_enabled=False, datadir="unused"
    )
    app._create_directories = lambda: None
    topic = app.topic(Topic.CHANGED_BULK.value, value_type=bytes, value_serializer="raw")
    seen: list[bytes] = []

    async def read(stream: Any) -> None:
        async for value in stream:
            seen.append(value)  # noqa: PERF401 - this is what agents look like

    app.agent(topic)(read)

    async with Redis.from_url(redis_url) as redis:
        await redis.xadd(STREAM, {"event": "1"})
        await redis.xadd(STREAM, {"event": "2"})
        await app.start()
        try:
            await eventually(lambda: seen == [b"1", b"2"], "both events")

            async def settled() -> bool:
                summary: Any = await redis.xpending(STREAM, GROUPS[Topic.CHANGED_BULK])
                return bool(summary["pending"] == 0)

            await eventually(settled, "both acknowledged")
        finally:
            await app.stop()


async def test_faust_code_can_send(redis_url: str) -> None:
    """A send adds an entry with the value as its event and headers as further fields."""
    register()
    app = faust.App("stock", broker=redis_url, web_enabled=False)
    async with Redis.from_url(redis_url) as redis:
        await app.producer.start()
        try:
            metadata = await (
                await app.producer.send(
                    Topic.CHANGED_BULK.value, None, b"{}", None, None, {"position": b"7"}
                )
            )
        finally:
            await app.producer.stop()
        entries: Any = await redis.xrange(STREAM)
        [(entry_id, fields)] = entries
    assert fields == {b"event": b"{}", b"position": b"7"}
    milliseconds, _, sequence = entry_id.decode().partition("-")
    assert metadata.offset == int(milliseconds) << 20 | int(sequence)
