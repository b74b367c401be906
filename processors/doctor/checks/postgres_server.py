"""Checks of Postgres: version, settings, and a role that row-level security applies to."""

from __future__ import annotations

from collections.abc import Iterator

from processors.doctor.findings import Condition
from runtime.errors import HeadraceError
from store.inspection.environment import (
    LockUse,
    PostgresFacts,
    ReplicaFacts,
    inspect_replica,
    inspect_server,
)
from store.postgres.connection import connect_once, explained
from store.postgres.revision import Schema, head_revision
from store.postgres.roles import take_role

__all__ = [
    "check_locks",
    "check_postgres",
    "check_replica",
    "postgres_facts",
    "replica_conditions",
]

_OLDEST_VERSION = 15
_OLDEST_VECTOR = (0, 8)
_PER_MAJOR = 10_000
_MIB = 2**20
_LAGGING_S = 10.0
"""Age of a replica's last transaction from which on its answers are noticeably old."""


async def postgres_facts(url: str, role: str) -> PostgresFacts:
    """Read facts about the server with the rights of a worker.

    Raises:
        Unavailable: the server can't be reached.
        ConfigurationError: the server refuses the connection, or the URL is wrong.
    """
    connection = await connect_once(url)
    try:
        with explained():
            async with connection.transaction():
                if role:
                    await take_role(connection, role, in_transaction=True)
                return await inspect_server(connection)
    finally:
        await connection.close()


def check_postgres(facts: PostgresFacts) -> Iterator[Condition]:
    """Judge version, extension, schema, role, durability, memory and locks."""
    yield _version(facts.version)
    yield _extension(facts.vector_version)
    yield _schema(facts.schema)
    yield _role(facts)
    yield _durability(facts)
    yield _memory(facts)
    yield check_locks(facts.locks)


def _version(version: int) -> Condition:
    text = f"{version // _PER_MAJOR}.{version % _PER_MAJOR}"
    if version < _OLDEST_VERSION * _PER_MAJOR:
        remedy = f"upgrade Postgres to {_OLDEST_VERSION} or later"
        return Condition.problem("postgres.version", text, remedy)
    return Condition.ok("postgres.version", text)


def _extension(version: str | None) -> Condition:
    name = "postgres.pgvector"
    if version is None:
        return Condition.problem(name, "not installed in the database", "run `headrace migrate`")
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_VECTOR:
        remedy = "install pgvector 0.8 or later, then `alter extension vector update`"
        return Condition.problem(name, version, remedy)
    return Condition.ok(name, version)


def _schema(schema: Schema) -> Condition:
    if schema.flaw is not None:
        return Condition.problem("postgres.schema", *schema.flaw)
    detail = f"revision {schema.revision}"
    if schema.is_newer:
        detail += f", newer than this version's {head_revision()}, which may use it"
    return Condition.ok("postgres.schema", detail)


def _role(facts: PostgresFacts) -> Condition:
    reasons = {
        "is a superuser": facts.is_a_superuser,
        "can bypass row-level security": facts.has_bypassrls,
        "owns tables": facts.owns_tables,
    }
    present = [reason for reason, holds in reasons.items() if holds]
    if present:
        return Condition.problem(
            "postgres.role",
            f"{facts.role} {' and '.join(present)}: row-level security does not apply to it",
            "set HEADRACE_WORKER_ROLE=headrace_worker",
        )
    detail = f"{facts.role}, restricted by row-level security"
    if facts.user_is_superuser:
        detail += "; its user is a superuser: `headrace access` creates users with fewer rights"
    return Condition.ok("postgres.role", detail)


def _durability(facts: PostgresFacts) -> Condition:
    if not facts.fsync:
        return Condition.problem(
            "postgres.durability", "fsync is off: a crash corrupts the database", "set `fsync = on`"
        )
    return Condition.ok("postgres.durability", "fsync is on")


def _memory(facts: PostgresFacts) -> Condition:
    buffers, indexes = facts.shared_buffers_bytes / _MIB, facts.vector_index_bytes / _MIB
    detail = f"shared_buffers {buffers:,.0f} MiB, vector indexes {indexes:,.0f} MiB"
    if indexes > buffers:
        return Condition.warning(
            "postgres.memory",
            f"{detail}: queries read from disk",
            "raise `shared_buffers` above the size of the vector indexes, or restart `headrace up`",
        )
    return Condition.ok("postgres.memory", detail)


def check_locks(locks: LockUse) -> Condition:
    """Judge whether every connection can search at once in the partition with most indexes."""
    detail = (
        f"a search locks up to {locks.of_a_search} tables and indexes, "
        f"and there is room for {locks.room} for each connection"
    )
    if locks.of_a_search > locks.room:
        needed = locks.per_transaction + locks.of_a_search - locks.room
        return Condition.warning(
            "postgres.locks",
            f"{detail}: many searches at once fail (`out of shared memory`)",
            f"raise `max_locks_per_transaction` to {needed} or more and restart Postgres; "
            "a replay moves a project into a partition if it was indexed before there were any",
        )
    return Condition.ok("postgres.locks", detail)


async def replica_conditions(primary_url: str, replica_url: str) -> list[Condition]:
    """Judge the replica of Postgres; empty if there is none."""
    if not replica_url:
        return []
    try:
        return [check_replica(await inspect_replica(primary_url, replica_url))]
    except HeadraceError as error:
        remedy = "check that it runs, and HEADRACE_READ_DATABASE_URL"
        return [Condition.warning("postgres.replica", error.message, remedy)]


def check_replica(facts: ReplicaFacts) -> Condition:
    """Judge how far the replica is behind. Its answers say what it has, so it is not a problem."""
    name = "postgres.replica"
    if not facts.is_replica:
        return Condition.warning(
            name,
            "HEADRACE_READ_DATABASE_URL names a server that takes writes, not a replica",
            "set it to a streaming replica, or remove it",
        )
    if not facts.has_notes:
        return Condition.warning(
            name,
            "no indexer notes the watermark in Postgres, so answers from the replica have none",
            "set HEADRACE_READ_DATABASE_URL for indexers, too",
        )
    if facts.is_paused:
        detail = f"its replay is paused; it lacks {facts.behind_bytes / _MIB:,.1f} MiB of the log"
        return Condition.warning(name, detail, "run `select pg_wal_replay_resume()` on it")
    if not facts.behind_bytes:
        return Condition.ok(name, "it has all that the primary has written")
    detail = f"{facts.behind_bytes / _MIB:,.1f} MiB behind the primary"
    if facts.age_s is not None:
        detail += f"; its last transaction is {facts.age_s:,.1f} s old"
        if facts.age_s < _LAGGING_S:
            return Condition.ok(name, detail)
    return Condition.warning(
        name, detail, "check its load, its network and long questions (max_standby_streaming_delay)"
    )
