"""Workers inside a test's event loop, and the state of their stream."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from events.names import GROUPS, Names, Topic
from events.streams.dead_letters import DeadLetter, DeadLetters
from events.transport import App, Options, run_app
from processors.agents import Delivery, batch_agent
from runtime.errors import MalformedEvent
from tests.support.forking import ROOT
from tests.support.waiting import within

__all__ = [
    "FAST",
    "NAMES",
    "STREAM",
    "TOPIC",
    "agent",
    "batches",
    "decode",
    "letters",
    "letters_are",
    "nothing_pending",
    "pending",
    "pending_is",
    "publish",
    "running",
    "worker_process",
]

NAMES = Names()
TOPIC = Topic.CHANGED_LIVE
STREAM = NAMES.stream(TOPIC)
FAST = Options(
    lease=timedelta(seconds=1),
    claim_interval=timedelta(milliseconds=50),
    retry_delay=timedelta(milliseconds=50),
    max_deliveries=3,
    shutdown_timeout=timedelta(seconds=2),
)


def decode(raw: bytes) -> str:
    """Decode an event of these tests: text that starts with "event"."""
    if not raw.startswith(b"event"):
        raise MalformedEvent("not an event")
    return raw.decode()


@asynccontextmanager
async def running(app: App) -> AsyncIterator[None]:
    """Run a worker for the length of a block."""
    stop, ready = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(run_app(app, stop, ready.set))
    async with within(10):
        await ready.wait()
    try:
        yield
    finally:
        stop.set()
        await task


@asynccontextmanager
async def batches(
    url: str,
    handle: Callable[[Sequence[Delivery[str]]], Awaitable[None]],
    *,
    on_dead: Callable[[DeadLetter], Awaitable[None]] | None = None,
    max_size: int = 8,
    options: Options = FAST,
) -> AsyncIterator[App]:
    """Run a worker with one batch agent on ``TOPIC``."""
    app = App("test", broker=url, options=options, on_dead=on_dead)
    batch_agent(
        app,
        TOPIC,
        decode=decode,
        handle=handle,
        max_size=max_size,
        within=timedelta(milliseconds=20),
        concurrency=1,
    )
    async with running(app):
        yield app


def agent(
    app: App,
    topic: Topic,
    *,
    decode: Callable[[bytes], str],
    handle: Callable[[Delivery[str]], Awaitable[None]],
    concurrency: int,
) -> None:
    """Declare an agent that handles events one at a time, ``concurrency`` of them at once."""

    async def handle_one(batch: Sequence[Delivery[str]]) -> None:
        await handle(batch[0])

    batch_agent(
        app,
        topic,
        decode=decode,
        handle=handle_one,
        max_size=1,
        within=timedelta(),
        concurrency=concurrency,
    )


async def publish(redis: Redis, *events: str) -> list[str]:
    """Add events to ``STREAM``; returns their entry ids."""
    entry_ids: list[Any] = [await redis.xadd(STREAM, {"event": event}) for event in events]
    return [entry_id.decode() for entry_id in entry_ids]


async def pending(redis: Redis) -> list[str]:
    """Ids of the pending entries; "?" while there is no group."""
    try:
        rows: Any = await redis.xpending_range(STREAM, GROUPS[TOPIC], "-", "+", 10_000)
    except ResponseError:
        return ["?"]
    return [row["message_id"].decode() for row in rows]


async def pending_is(redis: Redis, expected: list[str]) -> bool:
    """True if exactly these entries are pending."""
    return await pending(redis) == expected


def nothing_pending(redis: Redis) -> Callable[[], Awaitable[bool]]:
    """Condition for ``eventually``: no entry is pending."""
    return lambda: pending_is(redis, [])


async def letters(redis: Redis) -> list[DeadLetter]:
    """All dead letters."""
    return await DeadLetters(redis, NAMES).list()


async def letters_are(redis: Redis, count: int) -> bool:
    """True if there are that many dead letters."""
    return len(await letters(redis)) == count


@contextmanager
def worker_process(
    url: str, behaviour: str, lease: timedelta = FAST.lease, partitions: int = 1
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker process (``tests.support.transport_worker``) for the length of a block."""
    arguments = [url, behaviour, str(lease.total_seconds()), str(partitions)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.transport_worker", *arguments], cwd=ROOT
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
