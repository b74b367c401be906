"""A worker behind PgBouncer in transaction mode, which lends a session for each transaction."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
from redis.asyncio import Redis

from events.names import DocumentKey, LogPosition, Names
from events.streams.backlog import ARCHIVERS, read_backlog
from processors.doctor.checks.postgres_server import postgres_facts
from processors.doctor.doctor import Doctor
from runtime.child_process import ChildProcess
from runtime.embedded.users import server_user
from store.postgres.locks import Lock, archiver_lock
from store.postgres.pool import Database
from store.postgres.roles import WORKER
from tests.support.archives import ArchiveAt
from tests.support.changes import at, logged
from tests.support.databases import Database as FreshDatabase
from tests.support.replays import replay, tools
from tests.support.running import headrace
from tests.support.s3 import free_port
from tests.support.waiting import eventually, within
from tests.support.writes import opened

SESSIONS = 4
"""Sessions at the server. One of them holds the lock of the archiver."""

DOCUMENTS = 30


@pytest.fixture
async def pooled(database: FreshDatabase, servers_home: Path) -> AsyncIterator[FreshDatabase]:
    """The database through a PgBouncer with few sessions."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("no PgBouncer is installed, so workers behind it were not tested")
    home = servers_home / "pooler"
    home.mkdir()
    port = free_port()
    (server_directory,) = parse_qs(urlsplit(database.worker_url).query)["host"]
    (home / "users").write_text('"headrace_worker" ""\n"headrace_operator" ""\n')
    (home / "settings").write_text(
        f"""[databases]
* = host={server_directory}
[pgbouncer]
pool_mode = transaction
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {home / "users"}
default_pool_size = {SESSIONS}
"""
    )
    user = server_user([home])
    pooler = ChildProcess(
        "PgBouncer",
        [program, "-q", str(home / "settings")],
        log=home / "log",
        stop_signal=signal.SIGTERM,
        user=user,
    )
    pooler.start()
    address = f"127.0.0.1:{port}/{database.name}"
    try:
        await eventually(lambda: _accepts(port), "PgBouncer accepts connections")
        yield replace(
            database,
            worker_url=f"postgresql://headrace_worker@{address}",
            operator_url=f"postgresql://headrace_operator@{address}",
        )
    finally:
        await pooler.stop(timedelta(seconds=10))
        shutil.rmtree(home)


async def test_a_worker_shares_sessions(
    redis_url: str, redis: Redis, pooled: FreshDatabase
) -> None:
    """Changes, questions and a replay use few sessions, and leave no setting or lock behind."""
    owner = await asyncpg.connect(pooled.owner_url)
    async with headrace(redis_url, pooled) as running, opened(pooled.worker_url) as other:
        await running.changes({f"{n}.md": f"Weir {n} holds water." for n in range(DOCUMENTS)})
        answer = await running.client.ask("docs", "weir 7 holds")
        assert "7.md" in {result.citation.uri for result in answer.results}
        await eventually(lambda: _is_archiving(other), "the worker archives alone")
        await eventually(lambda: _is_archived(redis), "its changes are archived")
        sessions = await owner.fetch(
            "select pid from pg_stat_activity where datname = $1 and usename = $2",
            pooled.name,
            WORKER,
        )
        assert 1 < len(sessions) <= SESSIONS

        async with other.connection() as first, other.connection() as second:
            async with Lock.COMPACTION.holding(first, 1) as is_held:
                assert is_held
                async with within(20):  # the transaction that holds the lock does not delay it
                    await owner.execute("create index concurrently on chunks (tokens)")
                async with Lock.COMPACTION.holding(second, 1) as is_held_twice:
                    assert not is_held_twice
            async with Lock.COMPACTION.holding(second, 1) as is_held:
                assert is_held
        assert (await postgres_facts(pooled.worker_url, WORKER)).role == WORKER

        async with tools(redis_url, pooled) as operator:
            assert (await replay(operator, chunking="2:128")).switched
            (health,) = await Doctor(operator, None, timedelta(seconds=1)).examine(["docs"])
            assert health.is_healthy
    async with opened(pooled.worker_url) as other, archiver_lock(other, "headrace") as lock:
        assert lock is not None
        await lock.prove()
    plain = await asyncpg.connect(pooled.worker_url, statement_cache_size=0)
    for _ in range(2 * SESSIONS):
        row = await plain.fetchrow(
            "select current_user::text as role, "
            "current_setting('idle_in_transaction_session_timeout') as silence, "
            "(select count(*) from pg_prepared_statements) as prepared, "
            "(select count(*) from pg_locks where locktype = 'advisory') as locks"
        )
        assert tuple(row) == (WORKER, "0", 0, 0)
    await plain.close()
    await owner.close()


async def test_projects_share_archive_files(pooled: FreshDatabase, tmp_path: Path) -> None:
    """Several projects are archived in one file, and one of them is purged."""
    changes = {name: [logged("a.md", 1, name, project=name)] for name in ("alpha", "beta", "gamma")}
    async with opened(pooled.worker_url) as worker:
        kept = ArchiveAt.of(worker, tmp_path)
        assert await kept.archive.append_together(changes) == {}
        before = {DocumentKey("", "a.md"): LogPosition(at(9), 0)}
        alpha = await kept.projects.ensure("alpha")
        purged = await kept.archive.purge("alpha", alpha, before)
        assert purged is not None
        assert (purged.changes, purged.damaged) == (1, [])
        await kept.archive.tidy_shared()
        for name in changes:
            assert len(await kept.changes(project=name)) == 1


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


async def _is_archiving(other: Database) -> bool:
    async with archiver_lock(other, "headrace") as lock:
        return lock is None


async def _is_archived(redis: Redis) -> bool:
    streams = await read_backlog(redis, Names(), ARCHIVERS)
    return not any(stream.lag or stream.pending for stream in streams)
