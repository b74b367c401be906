"""Cost of waiting: commands to Redis and connections of idle workers, by number of partitions.

Two workers with all roles read 1 and 16 partitions, each on servers of its own. After 200 changes
are indexed and a further 75 s, the commands of 30 s are counted, as Redis counts them, including
those that scripts call. ``ratio`` is the commands with 16 partitions ÷ those with 1; the goal is 2
at most. ``clients`` are the connections to Redis of both workers and of this measurement.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from bench.figures import Report
from bench.stack import bench_stack
from events.client.client import Client
from events.models import DocumentChange
from events.server.connection import connect
from processors.embedders.hash_embedder import HASHING_MODEL

__all__ = ["measure"]

PARTITIONS = (1, 16)
WORKERS = 2
CHANGES = 200
SETTLING_S = 75.0
"""Upkeep becomes rare after a minute without events."""

COUNTED_S = 30.0


async def measure() -> Report:
    """Measure the commands per second and worker, and the connections, of idle workers."""
    figures: dict[str, float] = {}
    for partitions in PARTITIONS:
        commands, clients = await _idle(partitions)
        figures[f"commands_per_s_{partitions}"] = round(commands, 2)
        figures[f"clients_{partitions}"] = clients
    first, last = (figures[f"commands_per_s_{number}"] for number in PARTITIONS)
    return Report("partitions", {"ratio": round(last / first, 2), **figures})


async def _idle(partitions: int) -> tuple[float, int]:
    async with bench_stack() as stack, AsyncExitStack() as exits:
        for _ in range(WORKERS):
            worker = stack.worker(HEADRACE_MODEL=HASHING_MODEL, HEADRACE_PARTITIONS=str(partitions))
            await exits.enter_async_context(worker)
        async with Client.connect(stack.redis_url) as client:
            changes = [
                DocumentChange(project="docs", uri=f"{number}.md", content=f"Heron {number}")
                for number in range(CHANGES)
            ]
            await client.wait(await client.publish_many(changes))
        redis = connect(stack.redis_url)
        exits.push_async_callback(redis.aclose)
        await asyncio.sleep(SETTLING_S)
        before = await redis.info("stats")
        await asyncio.sleep(COUNTED_S)
        after = await redis.info("stats")
        clients = await redis.info("clients")
        processed = after["total_commands_processed"] - before["total_commands_processed"]
        return processed / COUNTED_S / WORKERS, int(clients["connected_clients"])
