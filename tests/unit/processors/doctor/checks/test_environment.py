"""Environment checks of the doctor, on invented servers, clocks and disks."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path

import pytest

from processors.doctor.checks.environment import (
    check_archive_storage,
    check_clocks,
    check_packages,
    check_room,
)
from processors.doctor.checks.postgres_server import check_postgres
from processors.doctor.checks.redis_server import check_redis
from processors.doctor.findings import State
from store.inspection.environment import LockUse, PostgresFacts
from store.postgres.revision import Schema, head_revision

MIB = 2**20
GIB = 2**30
REDIS = {
    "redis_version": "7.4.1",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "maxmemory_policy": "noeviction",
    "used_memory": 100 * MIB,
    "maxmemory": GIB,
    "user": "headrace_operator",
}
POSTGRES = PostgresFacts(
    version=180004,
    vector_version="0.8.5",
    schema=Schema(head_revision()),
    role="headrace_worker",
    is_a_superuser=False,
    has_bypassrls=False,
    owns_tables=False,
    user_is_superuser=False,
    fsync=True,
    shared_buffers_bytes=512 * MIB,
    vector_index_bytes=100 * MIB,
    clock=0.0,
    locks=LockUse(version=180004, per_transaction=64, most_indexes=42),
)


@pytest.mark.parametrize(
    ("facts", "name", "state"),
    [
        ({}, None, State.OK),
        ({"redis_version": "5.0.7"}, "redis.version", State.PROBLEM),
        ({"aof_enabled": 0}, "redis.persistence", State.WARNING),
        ({"aof_last_write_status": "err"}, "redis.persistence", State.PROBLEM),
        ({"maxmemory_policy": "allkeys-lru"}, "redis.eviction", State.PROBLEM),
        ({"used_memory": 900 * MIB}, "redis.memory", State.WARNING),
        ({"used_memory": 1020 * MIB}, "redis.memory", State.PROBLEM),
        ({"maxmemory": 0, "total_system_memory": 110 * MIB}, "redis.memory", State.WARNING),
        ({"maxmemory": 0}, None, State.OK),
    ],
)
def test_redis(facts: dict[str, object], name: str | None, state: State) -> None:
    """Each fault is reported by its own condition only, with a remedy."""
    conditions = check_redis({"127.0.0.1:6379": REDIS | facts})
    found = {one.name: one for one in conditions if one.state is not State.OK}
    assert {key: one.state for key, one in found.items()} == ({name: state} if name else {})
    assert all(one.remedy for one in found.values())


def test_redis_cluster() -> None:
    """Each condition is that of the worst node, and names it; each primary needs a replica."""
    replicated = REDIS | {"role": "master", "connected_slaves": 1}
    cluster = {
        "10.0.0.1:6379": replicated,
        "10.0.0.2:6379": replicated | {"used_memory": 1020 * MIB},
        "10.0.0.3:6379": replicated | {"connected_slaves": 0},
        "10.0.0.4:6379": REDIS | {"role": "slave"},
    }
    found = {one.name: one for one in check_redis(cluster) if one.state is not State.OK}
    assert {key: one.state for key, one in found.items()} == {
        "redis.memory": State.PROBLEM,
        "redis.cluster": State.WARNING,
    }
    assert found["redis.memory"].detail.startswith("10.0.0.2:6379: ")
    assert "10.0.0.3:6379" in found["redis.cluster"].detail


@pytest.mark.parametrize(
    ("changes", "name", "state"),
    [
        ({}, None, State.OK),
        ({"version": 140011}, "postgres.version", State.PROBLEM),
        ({"vector_version": None}, "postgres.pgvector", State.PROBLEM),
        ({"vector_version": "0.7.4"}, "postgres.pgvector", State.PROBLEM),
        ({"schema": Schema(None)}, "postgres.schema", State.PROBLEM),
        ({"schema": Schema("0001")}, "postgres.schema", State.PROBLEM),
        ({"schema": Schema("9999")}, "postgres.schema", State.PROBLEM),
        ({"schema": Schema("9999", "9998")}, "postgres.schema", State.PROBLEM),
        ({"schema": Schema("9999", head_revision())}, None, State.OK),
        ({"is_a_superuser": True}, "postgres.role", State.PROBLEM),
        ({"has_bypassrls": True}, "postgres.role", State.PROBLEM),
        ({"owns_tables": True}, "postgres.role", State.PROBLEM),
        ({"fsync": False}, "postgres.durability", State.PROBLEM),
        ({"vector_index_bytes": GIB}, "postgres.memory", State.WARNING),
        ({"locks": LockUse(180004, 64, 900)}, "postgres.locks", State.WARNING),
        ({"locks": LockUse(170004, 64, 42)}, "postgres.locks", State.WARNING),
    ],
)
def test_postgres(changes: dict[str, object], name: str | None, state: State) -> None:
    """Each fault is reported by its own condition only, with a remedy."""
    values = {field: getattr(POSTGRES, field) for field in PostgresFacts.__dataclass_fields__}
    facts = PostgresFacts(**values | changes)
    found = {one.name: one for one in check_postgres(facts) if one.state is not State.OK}
    assert {key: one.state for key, one in found.items()} == ({name: state} if name else {})
    assert all(one.remedy for one in found.values())


@pytest.mark.parametrize(
    ("offset", "state"),
    [(0.2, State.OK), (-3.0, State.WARNING), (60.0, State.PROBLEM), (-60.0, State.PROBLEM)],
)
def test_clocks(offset: float, state: State) -> None:
    """A clock ahead or behind is reported, with its direction."""
    condition = check_clocks({"Redis": offset, "Postgres": 0.0})
    assert condition.state is state
    assert ("behind" in condition.detail) == (offset <= -1)


@pytest.mark.parametrize(
    ("free", "state"), [(10 * GIB, State.OK), (GIB, State.WARNING), (MIB, State.PROBLEM)]
)
def test_room(free: int, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The free space of a missing directory is that of its nearest parent."""
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(free))
    assert check_room("disk.home", tmp_path / "not" / "there").state is state


def test_packages() -> None:
    """The packages of the test environment pass the check."""
    assert {one.state for one in check_packages()} == {State.OK}


async def test_an_archive_that_cannot_be_written(tmp_path: Path) -> None:
    """The detail quotes the whole error, although it has colons, and the remedy is its own."""
    (tmp_path / "file").write_text("not a directory")
    condition = await check_archive_storage(str(tmp_path / "file" / "archive"))
    assert condition.state is State.PROBLEM
    assert "can't be written (" in condition.detail
    assert condition.detail.endswith(")")
    assert condition.remedy.startswith("check the free space of the archive's storage")
