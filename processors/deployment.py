"""Identity check of a deployment: Postgres, Redis and settings must match before work begins."""

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
from runtime.lifespan import wait_for_tick
from runtime.settings import Settings
from store.postgres.deployment import (
    Deployment,
    adopt_deployment,
    claim_deployment,
    read_deployment,
)
from store.postgres.pool import Database
from store.postgres.revision import head_revision

__all__ = ["DeploymentWatch", "adopt", "claim_archive", "compare", "join"]

_INTERVAL = timedelta(seconds=2)


async def compare(redis: Redis, database: Database, settings: Settings) -> Stamp:
    """Check the deployment of these settings and return its stamp. Nothing is written.

    Raises:
        ConfigurationError: database, Redis and settings are not of one deployment; the message
            names both sides and the remedy.
        Unavailable: Redis or Postgres cannot be reached.
    """
    deployment = await read_deployment(database)
    names = Names(settings.stream_prefix)
    _check_prefix(deployment, settings)
    stamp = await read_stamp(redis, names)
    if stamp is not None:
        _check_same(stamp, deployment.id)
    expected = deployment.partitions if stamp is None else stamp.partitions
    chosen = settings.chosen_partitions
    return Stamp(
        id=deployment.id,
        prefix=settings.stream_prefix,
        partitions=settings.partitions if expected is None else check_partitions(expected, chosen),
        schema_revision=head_revision(),
    )


async def join(redis: Redis, database: Database, settings: Settings) -> Stamp:
    """Compare, as a worker, and write the missing identity to Postgres, Redis and the archive.

    Raises:
        ConfigurationError: as ``compare``, or changes wait in partitions that no worker would read.
        Unavailable: Redis or Postgres cannot be reached.
    """
    stamp = await compare(redis, database, settings)
    names = Names(stamp.prefix, stamp.partitions)
    await _check_stranded(redis, names)
    await claim_archive(database, settings, writes=True)
    await claim_deployment(database, stamp.prefix, stamp.partitions)
    try:
        current = await put_stamp(redis, names, stamp)
    except LogFull:
        return stamp  # the watch writes it after workers have made room
    _check_same(current, stamp.id)
    check_partitions(current.partitions, stamp.partitions)
    if current.schema_revision < stamp.schema_revision:
        await replace_stamp(redis, names, stamp)
    return stamp


async def adopt(
    redis: Redis, database: Database, settings: Settings, *, renews: bool = False
) -> Stamp:
    """Make database, Redis, archive and settings one deployment, whatever they were before.

    Needs an operator's role. With ``renews`` the deployment gets a new id, as the copy of a
    database needs one.

    Raises:
        ConfigurationError: changes wait in partitions that no worker would read, or the role lacks
            permission.
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
    # imported here: it takes a tenth of a second, and commands that only compare do not need it
    from store.archive.files import Files  # noqa: PLC0415
    from store.archive.marker import mark_folder  # noqa: PLC0415

    await mark_folder(database, Files(settings.archive_location), names.prefix)
    return stamp


class DeploymentWatch:
    """Restores the stamp if Redis lost it, and ends the worker if its deployment was changed."""

    def __init__(
        self, redis: Redis, stamp: Stamp, *, writes: bool = True, interval: timedelta = _INTERVAL
    ) -> None:
        self._redis = redis
        self._names = Names(stamp.prefix, stamp.partitions)
        self._stamp = stamp
        self._writes = writes
        self._interval = interval

    async def run(self, stop: asyncio.Event) -> None:
        """Check the stamp regularly until ``stop`` is set. Redis outages are tolerated.

        Raises:
            ConfigurationError: Redis now belongs to another deployment, or has other partitions.
        """
        while not stop.is_set():
            with contextlib.suppress(Retryable, MalformedEvent):
                await self._look()
            await wait_for_tick(stop, self._interval)

    async def _look(self) -> None:
        look = put_stamp(self._redis, self._names, self._stamp) if self._writes else None
        stamp = await (look or read_stamp(self._redis, self._names))
        if stamp is not None:
            _check_same(stamp, self._stamp.id)
            check_partitions(stamp.partitions, self._stamp.partitions)


async def claim_archive(database: Database, settings: Settings, *, writes: bool) -> None:
    """Make sure that no other copy of this database owns its folder in the archive.

    If the storage cannot be reached, the claim is left to the archiver, which keeps retrying.

    Raises:
        ConfigurationError: another copy owns the folder.
    """
    with contextlib.suppress(Unavailable):
        from store.archive.files import Files  # noqa: PLC0415 - as in ``adopt``
        from store.archive.marker import claim_folder  # noqa: PLC0415 - as in ``adopt``

        storage = Files(settings.archive_location)
        await claim_folder(database, storage, settings.stream_prefix, writes=writes)


def _check_same(stamp: Stamp, database_id: str) -> None:
    if stamp.id != database_id:
        raise ConfigurationError(
            f"Redis holds the streams {stamp.prefix}:* of deployment {stamp.id[:12]}, but the "
            f"database belongs to {database_id[:12]}",
            "set HEADRACE_REDIS_URL and HEADRACE_DATABASE_URL to one deployment, or "
            "HEADRACE_STREAM_PREFIX to a prefix of its own (if the other deployment no longer "
            "exists: `headrace deployment --adopt`)",
        )


def _check_prefix(deployment: Deployment, settings: Settings) -> None:
    if deployment.prefix not in {None, settings.stream_prefix}:
        raise ConfigurationError(
            f"the database belongs to the deployment with prefix {deployment.prefix}, the setting "
            f"says {settings.stream_prefix}",
            f"set HEADRACE_STREAM_PREFIX={deployment.prefix}, or use another database "
            "(to change the prefix: `headrace deployment --adopt`)",
        )


async def _check_stranded(redis: Redis, names: Names) -> None:
    partition = await stranded(redis, names)
    if partition is not None:
        raise ConfigurationError(
            f"changes wait in partition {partition}, and with HEADRACE_PARTITIONS="
            f"{names.partitions} no worker would read them",
            f"run workers with HEADRACE_PARTITIONS={partition + 1} or more until they are "
            "processed, then lower it",
        )
