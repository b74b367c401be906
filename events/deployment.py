"""The stamp in Redis that identifies the deployment of its streams, and their partitions.

Workers write it if it is missing, and every process compares it before it publishes or reads. A
raise of the number of partitions begins and ends in it: see ``events.partitions``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Collection
from datetime import timedelta
from time import monotonic
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis import exceptions
from redis.asyncio import Redis

from events.names import ARCHIVER, GROUPS, Names, Topic, change_streams
from events.partitions import LARGEST_PARTITIONS, Raise
from events.server.cluster import address_of, primaries_of
from events.server.connection import redis_errors
from events.server.raising import MoveBehind, NoteNumber, ReplaceStamp
from events.streams.entries import order
from events.streams.groups import read_groups
from runtime.errors import ConfigurationError, HeadraceError, MalformedEvent, Unavailable
from runtime.intervals import until_tick

__all__ = [
    "Stamp",
    "begin_raise",
    "check_partitions",
    "complete_raise",
    "follow_raises",
    "follow_stamp",
    "note_revision",
    "put_stamp",
    "read_stamp",
    "replace_stamp",
    "stranded",
    "use_stamp",
]

log = logging.getLogger(__name__)

_DAY_MS = 86_400_000
_FOLLOW_EVERY = timedelta(seconds=10)
_REPLICATED_WITHIN = timedelta(seconds=5)
_LOOK_AT_REPLICAS = timedelta(milliseconds=50)
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
    raises: tuple[Raise, ...] = ()

    @property
    def is_raising(self) -> bool:
        """Return whether the number of partitions is being raised."""
        return bool(self.raises) and self.raises[-1].completed_ms is None

    def raised(self, partitions: int) -> Self:
        """Return the stamp at the beginning of a raise."""
        raises = (*self.raises, Raise(self.partitions))
        return self.model_copy(update={"partitions": partitions, "raises": raises})

    def completed(self, now_ms: int) -> Self:
        """Return the stamp at the end of its raise."""
        last = Raise(self.raises[-1].former, now_ms)
        return self.model_copy(update={"raises": (*self.raises[:-1], last)})


async def follow_stamp(redis: Redis, names: Names) -> Stamp | None:
    """Read the stamp, and use its number of partitions if it is higher; return the stamp.

    Raises:
        MalformedEvent, Unavailable: as ``read_stamp``.
    """
    stamp = await read_stamp(redis, names)
    if stamp is not None:
        use_stamp(names, stamp)
    return stamp


async def follow_raises(redis: Redis, names: Names) -> None:
    """Follow raises of the number of partitions, until cancelled; Redis may be down."""
    while True:
        await asyncio.sleep(until_tick(_FOLLOW_EVERY).total_seconds())
        with contextlib.suppress(HeadraceError):
            await follow_stamp(redis, names)


def use_stamp(names: Names, stamp: Stamp) -> None:
    """Use the number of partitions of a stamp from now on, unless it is lower."""
    if stamp.partitions >= names.partitions:
        names.partitions, names.raises = stamp.partitions, stamp.raises


async def begin_raise(redis: Redis, names: Names, partitions: int, deployment_id: str) -> Stamp:
    """Begin to raise the number of partitions; return the stamp. Workers complete it.

    A raise that has begun is continued. ``deployment_id`` is that of the database.

    Raises:
        ConfigurationError: Redis belongs to another deployment, the number is not higher, another
            raise is not complete, no worker has started yet, or an entry id in the future would be
            passed on to all partitions.
        Unavailable: Redis can't be reached.
    """
    with redis_errors():
        stored: Any = await redis.get(names.deployment)
    if stored is None:
        raise ConfigurationError("Redis has no stamp of the deployment", "start a worker first")
    stamp = _parsed(names, stored)
    if stamp.id != deployment_id:
        raise ConfigurationError(
            f"Redis belongs to deployment {stamp.id[:12]}, the database to {deployment_id[:12]}",
            "set HEADRACE_REDIS_URL and HEADRACE_DATABASE_URL to one deployment",
        )
    if stamp.partitions == partitions and stamp.raises:
        return stamp
    if stamp.is_raising:
        raise ConfigurationError(
            f"the number of partitions is being raised to {stamp.partitions}",
            "wait until a worker has completed it",
        )
    if partitions <= stamp.partitions:
        raise ConfigurationError(
            f"the number of partitions is {stamp.partitions}, and can only be raised",
            f"name a higher one; to lower it, stop everything and see {_ADOPTING}",
        )
    await _check_ends(redis, Names(names.prefix, stamp.partitions))
    raised = stamp.raised(partitions)
    with redis_errors():
        if not await ReplaceStamp(redis)(names.deployment, stored, raised):
            raise ConfigurationError("the deployment was changed at the same time", "try again")
    return raised


async def complete_raise(
    redis: Redis, names: Names, stamp: Stamp, *, patience: timedelta = _REPLICATED_WITHIN
) -> None:
    """Complete the raise of a stamp, or repeat the last one; several workers may do so at once.

    Raises:
        Unavailable: Redis can't be reached, or a replica lacks the notes of the raise after
            ``patience``; the raise can be completed later.
    """
    raised = Names(names.prefix, stamp.partitions)
    note, move = NoteNumber(redis), MoveBehind(redis)
    with redis_errors():
        ends = [
            await note(raised, partition, stamp.partitions) for partition in range(stamp.partitions)
        ]
        end = max(ends, key=order)
        for topic, partition in change_streams(raised):
            await move(raised.stream(topic, partition), GROUPS[topic], end)
        if stamp.is_raising:
            for server in await primaries_of(redis):
                await _replicated(server, patience)
            stored: Any = await redis.get(names.deployment)
            if stored is not None and _parsed(names, stored) == stamp:
                completed = stamp.completed(await _now_ms(redis))
                await ReplaceStamp(redis)(names.deployment, stored, completed)
    log.info("partitions.raised: from %s to %s", stamp.raises[-1].former, stamp.partitions)


async def _replicated(server: Redis, patience: timedelta) -> None:
    """Wait until every replica that follows a server has what was written to it so far.

    A replica that takes over without the note of its partition would accept changes of publishers
    that choose by the former number.
    """
    deadline = monotonic() + patience.total_seconds()
    written: int | None = None
    while True:
        facts: dict[str, Any] = await server.info("replication")
        written = facts["master_repl_offset"] if written is None else written
        replicas = [fact for name, fact in facts.items() if re.fullmatch(r"slave\d+", name)]
        following = [replica for replica in replicas if replica["state"] == "online"]
        behind = [replica for replica in following if replica["offset"] < written]
        if not behind:
            return
        if monotonic() > deadline:
            raise Unavailable(
                f"{len(behind)} of {len(following)} replicas of {address_of(server)} are behind it",
                "check them: a raise of the number of partitions waits for its replicas",
            )
        await asyncio.sleep(_LOOK_AT_REPLICAS.total_seconds())


async def _check_ends(redis: Redis, names: Names) -> None:
    """Refuse entry ids in the far future: a raise would move all streams behind them."""
    latest = await _now_ms(redis) + _DAY_MS
    for stream in change_streams(names):
        key = names.stream(*stream)
        with redis_errors():
            last: Any = await redis.xrevrange(key, count=1)
        if last and order(last[0][0].decode())[0] > latest:
            raise ConfigurationError(
                f"the last entry of {key} has an id in the future: {last[0][0].decode()}",
                "find out who wrote it; changes of this partition would overtake all others",
            )


async def _now_ms(redis: Redis) -> int:
    with redis_errors():
        seconds, microseconds = await redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


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


async def note_revision(redis: Redis, names: Names, revision: str) -> None:
    """Note a later revision of the schema in the stamp; raises as ``put_stamp``."""
    with redis_errors():
        stored: Any = await redis.get(names.deployment)
        stamp = None if stored is None else _parsed(names, stored)
        if stamp is not None and stamp.schema_revision < revision:
            noted = stamp.model_copy(update={"schema_revision": revision})
            await ReplaceStamp(redis)(names.deployment, stored, noted)


async def replace_stamp(redis: Redis, names: Names, stamp: Stamp) -> None:
    """Write a stamp over any existing one; raises as ``put_stamp``.

    Publishers may choose by any number until it is raised again.
    """
    with redis_errors():
        await redis.set(names.deployment, stamp.model_dump_json())
        await redis.unlink(*(names.number_key(n) for n in range(LARGEST_PARTITIONS)))


def check_partitions(expected: int, chosen: int | None, raises: Collection[Raise] = ()) -> int:
    """Return the number of partitions to use; ``chosen`` is None if no setting names it.

    A setting of before a raise is no error: a process with it may start again at any time.

    Raises:
        ConfigurationError: the setting names a number that the deployment never had.
    """
    if chosen in {None, expected, *(raised.former for raised in raises)}:
        return expected
    raise ConfigurationError(
        f"this deployment's number of partitions is {expected}, but HEADRACE_PARTITIONS is "
        f"{chosen}",
        f"set HEADRACE_PARTITIONS={expected}, or change the deployment ({_ADOPTING})",
    )


async def stranded(redis: Redis, names: Names) -> int | None:
    """Return a partition that no worker reads, and whose changes are not all handled.

    It is the highest one beyond those of ``names``, or one with the keys of an earlier version.
    Returns None if every group has handled all changes of such partitions.

    Raises:
        Unavailable: Redis can't be reached.
    """
    streams = [
        (partition, topic, names.stream(topic, partition))
        for partition in reversed(range(names.partitions, LARGEST_PARTITIONS))
        for topic in _GROUPS
    ]
    streams += [
        (partition, topic, _former_key(names, topic, partition))
        for partition in reversed(range(1, LARGEST_PARTITIONS))
        for topic in _GROUPS
    ]
    keys = [key for _, _, key in streams]
    with redis_errors():
        if not await redis.exists(*keys):
            return None  # the usual case: one command instead of one for each stream
        async with redis.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.xlen(key)
            lengths = await pipeline.execute()
        for (partition, topic, key), length in zip(streams, lengths, strict=True):
            if length and not await _is_done(redis, key, _GROUPS[topic]):
                return partition
    return None


def _former_key(names: Names, topic: Topic, partition: int) -> str:
    """Key of a stream in versions whose hash tags were not spread."""
    return names.stream(topic).replace(".0}", f".{partition}}}", 1)


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
