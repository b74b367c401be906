"""A deployment knows itself: Postgres, Redis and settings are compared before any work begins."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

from redis.asyncio import Redis

from events.deployment import (
    Stamp,
    check_partitions,
    put_stamp,
    read_stamp,
    replace_stamp,
    stranded,
)
from events.names import Names
from runtime.errors import ConfigurationError, LogFull, MalformedEvent, Retryable, Unavailable
from runtime.settings import Settings
from store.archive.files import Files
from store.archive.marker import claim_folder, mark_folder
from store.database import Database
from store.deployment import Deployment, adopt_deployment, claim_deployment, read_deployment
from store.revision import head_revision

__all__ = ["DeploymentWatch", "adopt", "chosen_partitions", "claim_archive", "compare", "join"]

_INTERVAL = timedelta(seconds=2)


def chosen_partitions(settings: Settings) -> int | None:
    """The number of partitions that somebody set, or None: the deployment decides."""
    return settings.partitions if "partitions" in settings.model_fields_set else None


async def compare(redis: Redis, database: Database, settings: Settings) -> Stamp:
    """What the deployment of these settings is; nothing is written.

    Raises:
        ConfigurationError: database, Redis and settings are not of one deployment; one line names
            both sides and the cure.
        Unavailable: Redis or Postgres cannot be reached.
    """
    deployment = await read_deployment(database)
    names = Names(settings.stream_prefix)
    _check_prefix(deployment, settings)
    stamp = await read_stamp(redis, names)
    if stamp is not None:
        _check_same(stamp, deployment.id)
    expected = deployment.partitions if stamp is None else stamp.partitions
    chosen = chosen_partitions(settings)
    return Stamp(
        id=deployment.id,
        prefix=settings.stream_prefix,
        partitions=settings.partitions if expected is None else check_partitions(expected, chosen),
        schema_revision=head_revision(),
    )


async def join(redis: Redis, database: Database, settings: Settings) -> Stamp:
    """Compare, as a worker: it enters what is not known yet, in Postgres and in Redis.

    Raises:
        ConfigurationError: as ``compare``; or changes wait in partitions that nobody would read.
        Unavailable: Redis or Postgres cannot be reached.
    """
    stamp = await compare(redis, database, settings)
    names = Names(stamp.prefix, stamp.partitions)
    await _check_stranded(redis, names)
    await claim_archive(database, settings, writes=True)
    await claim_deployment(database, stamp.prefix, stamp.partitions)
    try:
        found = await put_stamp(redis, names, stamp)
    except LogFull:
        return stamp  # workers make room; the watch writes it then
    _check_same(found, stamp.id)
    check_partitions(found.partitions, stamp.partitions)
    if found.schema_revision < stamp.schema_revision:
        await replace_stamp(redis, names, stamp)
    return stamp


async def adopt(
    redis: Redis, database: Database, settings: Settings, *, renews: bool = False
) -> Stamp:
    """Make database, Redis, archive and settings one deployment, whatever they were.

    As an operator. ``renews``: it gets a new id, as a copy of a database needs one.

    Raises:
        ConfigurationError: changes wait in partitions that nobody would read, or the role may not.
        Unavailable: Redis or Postgres cannot be reached.
    """
    names = Names(settings.stream_prefix, settings.partitions)
    await _check_stranded(redis, names)
    await adopt_deployment(database, names.prefix, names.partitions, renews=renews)
    stamp = Stamp(
        id=(await read_deployment(database)).id,
        prefix=names.prefix,
        partitions=names.partitions,
        schema_revision=head_revision(),
    )
    await replace_stamp(redis, names, stamp)
    await mark_folder(database, Files(settings.archive_location), names.prefix)
    return stamp


class DeploymentWatch:
    """Writes the stamp again that a Redis has lost; ends a worker whose deployment was changed."""

    def __init__(
        self, redis: Redis, stamp: Stamp, *, writes: bool = True, interval: timedelta = _INTERVAL
    ) -> None:
        self._redis = redis
        self._names = Names(stamp.prefix, stamp.partitions)
        self._stamp = stamp
        self._writes = writes
        self._interval = interval

    async def run(self, stop: asyncio.Event) -> None:
        """Look until ``stop`` is set; a Redis that is away is waited out.

        Raises:
            ConfigurationError: Redis belongs to another deployment by now, or has other partitions.
        """
        while not stop.is_set():
            with contextlib.suppress(Retryable, MalformedEvent):
                await self._look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._interval.total_seconds())

    async def _look(self) -> None:
        look = put_stamp(self._redis, self._names, self._stamp) if self._writes else None
        found = await (look or read_stamp(self._redis, self._names))
        if found is not None:
            _check_same(found, self._stamp.id)
            check_partitions(found.partitions, self._stamp.partitions)


async def claim_archive(database: Database, settings: Settings, *, writes: bool) -> None:
    """Make sure that no other copy of this database has its folder in the archive.

    A storage that is away is left to the archiver, which tries again and again.

    Raises:
        ConfigurationError: another copy has it.
    """
    with contextlib.suppress(Unavailable):
        storage = Files(settings.archive_location)
        await claim_folder(database, storage, settings.stream_prefix, writes=writes)


def _check_same(stamp: Stamp, database_id: str) -> None:
    if stamp.id != database_id:
        raise ConfigurationError(
            f"Redis holds the streams {stamp.prefix}:* of deployment {stamp.id[:12]}, the database "
            f"is of {database_id[:12]}: set HEADRACE_REDIS_URL and HEADRACE_DATABASE_URL to one "
            "deployment, or HEADRACE_STREAM_PREFIX to a prefix of its own (if the other is gone: "
            "`headrace deployment --adopt`)"
        )


def _check_prefix(deployment: Deployment, settings: Settings) -> None:
    if deployment.prefix not in {None, settings.stream_prefix}:
        raise ConfigurationError(
            f"the database is of the deployment with prefix {deployment.prefix}, the setting says "
            f"{settings.stream_prefix}: set HEADRACE_STREAM_PREFIX={deployment.prefix}, or another "
            "database (if the prefix is to change: `headrace deployment --adopt`)"
        )


async def _check_stranded(redis: Redis, names: Names) -> None:
    partition = await stranded(redis, names)
    if partition is not None:
        raise ConfigurationError(
            f"changes wait in partition {partition}, and with HEADRACE_PARTITIONS="
            f"{names.partitions} nobody would read them: let workers finish them with "
            f"HEADRACE_PARTITIONS={partition + 1} or more, then lower it"
        )
