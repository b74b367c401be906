"""Identity check of a deployment: Postgres, Redis and settings must match before work begins."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from time import monotonic

from redis.asyncio import Redis

from events.deployment import (
    Stamp,
    begin_raise,
    check_partitions,
    complete_raise,
    note_revision,
    put_stamp,
    read_stamp,
    replace_stamp,
    stranded,
    use_stamp,
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

__all__ = [
    "DeploymentWatch",
    "adopt",
    "claim_archive",
    "compare",
    "join",
    "names_of",
    "raise_partitions",
]

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
    raises = () if stamp is None else stamp.raises
    partitions = settings.partitions
    if expected is not None:
        partitions = check_partitions(expected, settings.chosen_partitions, raises)
    return Stamp(
        id=deployment.id,
        prefix=settings.stream_prefix,
        partitions=partitions,
        schema_revision=head_revision(),
        raises=raises,
    )


async def join(redis: Redis, database: Database, settings: Settings) -> Stamp:
    """Compare, as a worker, and write the missing identity to Postgres, Redis and the archive.

    Raises:
        ConfigurationError: as ``compare``, or changes wait in partitions that no worker would read.
        Unavailable: Redis or Postgres cannot be reached.
    """
    stamp = await compare(redis, database, settings)
    names = names_of(stamp)
    await _check_stranded(redis, names)
    await claim_archive(database, settings, writes=True)
    await claim_deployment(database, stamp.prefix, stamp.partitions)
    try:
        current = await put_stamp(redis, names, stamp)
    except LogFull:
        return stamp  # the watch writes it after workers have made room
    _check_same(current, stamp.id)
    check_partitions(current.partitions, stamp.partitions, current.raises)
    if current.schema_revision < stamp.schema_revision:
        await note_revision(redis, names, stamp.schema_revision)
    return stamp.model_copy(update={"partitions": current.partitions, "raises": current.raises})


def names_of(stamp: Stamp) -> Names:
    """Names of the keys of a deployment."""
    return Names(stamp.prefix, stamp.partitions, stamp.raises)


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


_RAISE_PATIENCE = timedelta(seconds=30)
_LOOK_AT_RAISE = timedelta(milliseconds=200)


async def raise_partitions(
    redis: Redis, database: Database, settings: Settings, *, patience: timedelta = _RAISE_PATIENCE
) -> Stamp:
    """Raise the number of partitions to that of the settings; return the stamp.

    Changes may be published at the same time. Needs an operator's role. A call can be repeated,
    also after a kill.

    Raises:
        ConfigurationError: the servers are not of one deployment, or as ``begin_raise``.
        Unavailable: no worker has completed the raise in time; the next one that starts does.
    """
    deployment = await read_deployment(database)
    _check_prefix(deployment, settings)
    names = Names(settings.stream_prefix)
    stamp = await begin_raise(redis, names, settings.partitions, deployment.id)
    await adopt_deployment(database, names.prefix, stamp.partitions)
    deadline = monotonic() + patience.total_seconds()
    while stamp.is_raising and stamp.partitions == settings.partitions:
        if monotonic() > deadline:
            raise Unavailable(
                f"the raise to {stamp.partitions} partitions has begun, and no worker completes it",
                "start a worker: until then, changes wait at their publishers",
            )
        await asyncio.sleep(_LOOK_AT_RAISE.total_seconds())
        stamp = await read_stamp(redis, names) or stamp
    return stamp


class DeploymentWatch:
    """Restores the stamp if Redis lost it, and ends the worker if its deployment was changed.

    It follows and completes raises of the number of partitions. ``names`` are those that all parts
    of the worker use.
    """

    def __init__(
        self,
        redis: Redis,
        names: Names,
        stamp: Stamp,
        *,
        writes: bool = True,
        interval: timedelta = _INTERVAL,
    ) -> None:
        self._redis = redis
        self._names = names
        self._stamp = stamp
        self._writes = writes
        self._interval = interval

    async def run(self, stop: asyncio.Event) -> None:
        """Check the stamp regularly until ``stop`` is set. Redis outages are tolerated.

        Raises:
            ConfigurationError: Redis now belongs to another deployment, or has fewer partitions.
        """
        while not stop.is_set():
            with contextlib.suppress(Retryable, MalformedEvent):
                await self._look()
            await wait_for_tick(stop, self._interval)

    async def _look(self) -> None:
        stamp = await read_stamp(self._redis, self._names)
        is_lost = stamp is None and self._writes
        if is_lost:
            stamp = await put_stamp(self._redis, self._names, self._stamp)
        if stamp is None:
            return
        _check_same(stamp, self._stamp.id)
        if stamp.partitions < self._names.partitions:
            check_partitions(stamp.partitions, self._names.partitions)
        use_stamp(self._names, stamp)
        self._stamp = stamp
        if self._writes and (stamp.is_raising or (is_lost and stamp.raises)):
            await complete_raise(self._redis, self._names, stamp)


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
            f"the database belongs to the deployment with prefix {deployment.prefix}, but "
            f"HEADRACE_STREAM_PREFIX is {settings.stream_prefix}",
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
