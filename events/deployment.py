"""The stamp in Redis that identifies the deployment of its streams, and their partitions.

Workers write it if it is missing, and every process compares it before it publishes or reads.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis import exceptions
from redis.asyncio import Redis

from events.names import ARCHIVER, GROUPS, Names, Topic
from events.server.connection import redis_errors
from events.streams.groups import read_groups
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

log = logging.getLogger(__name__)

LARGEST_PARTITIONS = 256
_GROUPS = {
    topic: {group, ARCHIVER} if topic.carries_changes else {group}
    for topic, group in GROUPS.items()
    if topic not in {Topic.QUERY, Topic.JUDGED}
}
_ADOPTING = "`headrace deployment --adopt`"


class Stamp(BaseModel):
    """Identity of a deployment. ``id``: 32 hex digits, the same as in its database."""

    model_config = ConfigDict(frozen=True)

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    prefix: str
    partitions: Annotated[int, Field(ge=1, le=LARGEST_PARTITIONS)]
    schema_revision: str = ""


async def read_stamp(redis: Redis, names: Names) -> Stamp | None:
    """Return the stamp, or None if no worker has started since Redis was empty.

    Users that an earlier version created may not read it; their streams are not checked, as before.

    Raises:
        MalformedEvent: the key holds something else.
        Unavailable: Redis can't be reached.
    """
    try:
        with redis_errors():
            stored: Any = await redis.get(names.deployment)
    except ConfigurationError as error:
        if not isinstance(error.__cause__, exceptions.NoPermissionError):
            raise
        log.warning("deployment.unreadable: run `headrace access` again")
        return None
    return None if stored is None else _parsed(names, stored)


async def put_stamp(redis: Redis, names: Names, stamp: Stamp) -> Stamp:
    """Write the stamp unless there is one; return the stamp that is stored.

    Raises:
        ConfigurationError: our user may not write it.
        MalformedEvent: the key holds something else.
        Unavailable: Redis can't be reached.
    """
    with redis_errors():
        stored: Any = await redis.get(names.deployment)
        if stored is None:
            await redis.set(names.deployment, stamp.model_dump_json(), nx=True)
            stored = await redis.get(names.deployment)
    return stamp if stored is None else _parsed(names, stored)


async def replace_stamp(redis: Redis, names: Names, stamp: Stamp) -> None:
    """Write a stamp over any existing one; raises as ``put_stamp``."""
    with redis_errors():
        await redis.set(names.deployment, stamp.model_dump_json())


def check_partitions(expected: int, chosen: int | None) -> int:
    """Return the number of partitions to use; ``chosen`` is None if no setting names it.

    Raises:
        ConfigurationError: the setting names another number than the deployment has.
    """
    if chosen is None or chosen == expected:
        return expected
    raise ConfigurationError(
        f"this deployment's number of partitions is {expected}, the setting says {chosen}",
        f"set HEADRACE_PARTITIONS={expected}, or change the deployment ({_ADOPTING})",
    )


async def stranded(redis: Redis, names: Names) -> int | None:
    """Return the highest partition beyond those of ``names`` whose changes are not all handled.

    Returns None if every group has handled all changes of such partitions.

    Raises:
        Unavailable: Redis can't be reached.
    """
    streams = [
        (partition, topic)
        for partition in reversed(range(names.partitions, LARGEST_PARTITIONS))
        for topic in _GROUPS
    ]
    keys = [names.stream(topic, partition) for partition, topic in streams]
    with redis_errors():
        if not keys or not await redis.exists(*keys):
            return None  # the usual case: one command instead of one for each stream
        async with redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.xlen(key)
            lengths = await pipeline.execute()
        for (partition, topic), key, length in zip(streams, keys, lengths, strict=True):
            if length and not await _is_done(redis, key, _GROUPS[topic]):
                return partition
    return None


async def _is_done(redis: Redis, key: str, groups: Collection[str]) -> bool:
    progress = await read_groups(redis, key)
    entries: Any = await redis.xrevrange(key, count=1)
    ends = [entry[0].decode() for entry in entries]
    done = {name for name, group in progress.items() if [group.handled] == ends}
    return done.issuperset(groups)


def _parsed(names: Names, found: bytes) -> Stamp:
    try:
        return Stamp.model_validate_json(found)
    except ValidationError:
        raise MalformedEvent(
            f"the key {names.deployment} in Redis does not hold a deployment stamp",
            f"write it again ({_ADOPTING})",
        ) from None
