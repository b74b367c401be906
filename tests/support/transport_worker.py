"""Worker for tests that kill it: ``transport_worker.py URL held|crash|echo LEASE PARTITIONS``.

``held`` takes events and never finishes one; ``crash`` dies on the event "event poison"; finished
events are added to the list "applied". ``LEASE`` is in seconds.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from datetime import timedelta

from redis.asyncio import Redis

from events.transport import App, run_app
from processors.agents import Delivery
from tests.support.workers import FAST, TOPIC, agent, decode


async def main(url: str, behaviour: str, lease: timedelta, partitions: int) -> None:
    """Run until killed."""
    redis = Redis.from_url(url)

    async def handle(delivery: Delivery[str]) -> None:
        await redis.rpush("begun", delivery.event)
        if behaviour == "held":
            await asyncio.Event().wait()
        if behaviour == "crash" and "poison" in delivery.event:
            os.kill(os.getpid(), signal.SIGKILL)
        await redis.rpush("applied", delivery.event)

    app = App("test", broker=url, options=replace(FAST, lease=lease, partitions=partitions))
    agent(app, TOPIC, decode=decode, handle=handle, concurrency=2)
    await run_app(app, asyncio.Event())


if __name__ == "__main__":
    _, url, behaviour, lease, partitions = sys.argv
    asyncio.run(main(url, behaviour, timedelta(seconds=float(lease)), int(partitions)))
