"""The stamp by which a Redis says whose streams it holds, and in how many partitions.

Workers write it where there is none, and every process compares it before it publishes or reads.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis import exceptions
from redis.asyncio import Redis

from events.connection import redis_errors
from events.names import ARCHIVER, GROUPS, Names, Topic
from runtime.errors import ConfigurationError, MalformedEvent

__all__ = [
    "LARGEST_PARTITIONS",
    "Stamp",
    "check_partitions",
    "put_stamp",
    "read_stamp",
    "replace_stamp",
    "stranded",
]

log = structlog.get_logger(__name__)

LARGEST_PARTITIONS = 256
_GROUPS = {
    topic: {group, ARCHIVER} if topic.carries_changes else {group}
    for topic, group in GROUPS.items()
    if topic is not Topic.QUERY
}
_ADOPTING = "`headrace deployment --adopt`"


class Stamp(BaseModel):
    """What a deployment says of itself. ``id``: 32 hex digits, those of its database."""

    model_config = ConfigDict(frozen=True)

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    prefix: str
    partitions: Annotated[int, Field(ge=1, le=LARGEST_PARTITIONS)]
    schema_revision: str = ""


async def read_stamp(redis: Redis, names: Names) -> Stamp | None:
    """The stamp, or None: no worker has started since Redis was empty.

    Users that an earlier version made may not read it; they are not checked, as before.

    Raises:
        MalformedEvent: the key holds something else.
        Unavailable: Redis cannot be reached.
    """
    try:
        with redis_errors():
            found: Any = await redis.get(names.deployment)
    except ConfigurationError as error:
        if not isinstance(error.__cause__, exceptions.NoPermissionError):
            raise
        log.warning("deployment.unreadable", cure="run `headrace access` again")
        return None
    return None if found is None else _parsed(names, found)


async def put_stamp(redis: Redis, names: Names, stamp: Stamp) -> Stamp:
    """The stamp that is there, which is the given one where there was none.

    Raises:
        ConfigurationError: our user may not write it.
        MalformedEvent: the key holds something else.
        Unavailable: Redis cannot be reached.
    """
    with redis_errors():
        found: Any = await redis.get(names.deployment)
        if found is None:
            await redis.set(names.deployment, stamp.model_dump_json(), nx=True)
            found = await redis.get(names.deployment)
    return stamp if found is None else _parsed(names, found)


async def replace_stamp(redis: Redis, names: Names, stamp: Stamp) -> None:
    """Write a stamp whatever is there; raises as ``put_stamp``."""
    with redis_errors():
        await redis.set(names.deployment, stamp.model_dump_json())


def check_partitions(expected: int, chosen: int | None) -> int:
    """The number of partitions to use; ``chosen`` None: no setting names one.

    Raises:
        ConfigurationError: the setting names another number than the deployment has.
    """
    if chosen is None or chosen == expected:
        return expected
    raise ConfigurationError(
        f"this deployment's number of partitions is {expected}, the setting says {chosen}: set "
        f"HEADRACE_PARTITIONS={expected}, or change the deployment ({_ADOPTING})"
    )


async def stranded(redis: Redis, names: Names) -> int | None:
    """The highest partition beyond those of ``names`` with changes that some group has not done.

    None: there is none.

    Raises:
        Unavailable: Redis cannot be reached.
    """
    streams = [
        (partition, topic)
        for partition in reversed(range(names.partitions, LARGEST_PARTITIONS))
        for topic in _GROUPS
    ]
    keys = [names.stream(topic, partition) for partition, topic in streams]
    with redis_errors():
        if not keys or not await redis.exists(*keys):
            return None  # as nearly always: one command instead of one for each stream
        async with redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.xlen(key)
            lengths = await pipeline.execute()
        for (partition, topic), key, length in zip(streams, keys, lengths, strict=True):
            if length and not await _is_done(redis, key, _GROUPS[topic]):
                return partition
    return None


async def _is_done(redis: Redis, key: str, groups: Collection[str]) -> bool:
    rows: Any = await redis.xinfo_groups(key)
    entries: Any = await redis.xrevrange(key, count=1)
    done = {
        row["name"].decode()
        for row in rows
        if row["pending"] == 0 and [row["last-delivered-id"]] == [entry[0] for entry in entries]
    }
    return done.issuperset(groups)


def _parsed(names: Names, found: bytes) -> Stamp:
    try:
        return Stamp.model_validate_json(found)
    except ValidationError:
        raise MalformedEvent(
            f"the key {names.deployment} in Redis is no stamp of a deployment: "
            f"write it again ({_ADOPTING})"
        ) from None
