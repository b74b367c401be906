"""Detection that a deployment is not used, so that an unused `up` can end."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from pydantic import TypeAdapter, ValidationError
from redis.asyncio import Redis

from events.deployment import follow_stamp
from events.names import GROUPS, Names
from events.server.connection import connect, redis_errors
from events.streams.backlog import read_backlog
from events.streams.groups import read_progress
from runtime.errors import Unavailable, UsageError
from runtime.settings import Duration, Settings

__all__ = ["parse_idle_time", "wait_until_idle"]

_LONGEST_POLL_SECONDS = 5.0
_POLLS = 8
_DURATION: TypeAdapter[timedelta] = TypeAdapter(Duration)


def parse_idle_time(text: str) -> timedelta:
    """Convert the option --until-idle: seconds, or ISO 8601 (PT30M).

    Raises:
        UsageError: it is neither, or not above 0.
    """
    try:
        return _DURATION.validate_python(text)
    except ValidationError:
        raise UsageError(
            f"--until-idle {text[:40]!r} is not a duration", "write seconds, or PT30M"
        ) from None


async def wait_until_idle(settings: Settings, names: Names, idle: timedelta) -> None:
    """Wait until nothing was published, asked or pending for as long as ``idle``.

    A server that does not respond is restarted by the supervisor, so that counts as use.
    """
    poll_seconds = min(_LONGEST_POLL_SECONDS, idle.total_seconds() / _POLLS)
    now = asyncio.get_running_loop().time
    redis = connect(settings.redis_url)
    try:
        last_state: object = None
        last_use = now()
        while now() - last_use < idle.total_seconds():
            await asyncio.sleep(poll_seconds)
            state = await _state(redis, names)
            if state is None or state != last_state:
                last_use = now()
            last_state = state
    finally:
        await redis.aclose()


async def _state(redis: Redis, names: Names) -> tuple[str, ...] | None:
    """Last delivered entries of all groups; None if entries wait or the server doesn't respond."""
    try:
        await follow_stamp(redis, names)
        groups = [
            (names.stream(topic, partition), group)
            for topic, group in GROUPS.items()
            for partition in range(names.partitions)
        ]
        backlog = await read_backlog(redis, names)
        with redis_errors():
            progress = await read_progress(redis, groups)
    except Unavailable:
        return None
    if any(stream.pending or stream.lag != 0 for stream in backlog):
        return None
    return tuple(group.delivered for group in progress)
