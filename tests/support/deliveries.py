"""Second deliveries of changes, and the outcomes of both."""

from __future__ import annotations

from redis.asyncio import Redis

from events.client.outcomes import Outcome, Outcomes
from events.client.publisher import Receipt
from events.names import GROUPS, Names, Topic
from tests.support.running import Headrace

__all__ = ["deliver_again", "outcomes_of"]


async def deliver_again(running: Headrace) -> None:
    """Let the indexer read all live changes once more when the next one is published.

    A worker that dies between commit and acknowledgement has the same effect.
    """
    async with Redis.from_url(running.redis_url) as redis:
        stream = Names().stream(Topic.CHANGED_LIVE)
        await redis.xgroup_setid(stream, GROUPS[Topic.CHANGED_LIVE], "0")


async def outcomes_of(running: Headrace, receipt: Receipt) -> list[Outcome]:
    """All outcomes of a change, oldest first; each delivery has one."""
    async with Redis.from_url(running.redis_url) as redis:
        entries = (await Outcomes(redis, Names()).read_all({0: "0-0"})).get(0, [])
    outcomes = [entry.outcome for entry in entries if entry.outcome is not None]
    return [outcome for outcome in outcomes if outcome.data.token == receipt.token]
