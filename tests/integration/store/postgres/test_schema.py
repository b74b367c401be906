"""Migrations, and checks at the opening of a database."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
from structlog.testing import capture_logs

from runtime.embedded import EmbeddedPostgres
from runtime.errors import ConfigurationError, Unavailable
from store.postgres.pool import Database
from store.postgres.revision import head_revision, revisions
from store.postgres.schema import upgrade
from store.postgres.schema_watch import SchemaWatch
from tests.support.databases import Database as FreshDatabase
from tests.support.databases import create_database
from tests.support.migrating import migrate_to
from tests.support.waiting import eventually, patience
from tests.support.writes import opened

DECLARED = Path(__file__).with_name("declared_schema.txt")
CATALOG = """
select format('%s.%s %s%s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
    case when a.attnotnull then ' not null' else '' end,
    case when a.attidentity <> '' then ' identity' else '' end) as line
from pg_class c
join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
union all
select format('index %s', indexdef)
from pg_indexes i
join pg_class c on c.oid = i.tablename::regclass
where schemaname = 'public' and not c.relispartition
union all
select format('partitions of %s: %s, of which with row-level security %s', i.inhparent::regclass,
    count(*), count(*) filter (where c.relrowsecurity and c.relforcerowsecurity))
from pg_inherits i
join pg_class c on c.oid = i.inhrelid and c.relkind in ('r', 'p')
group by i.inhparent
union all
select format('constraint %s %s', k.conrelid::regclass, pg_get_constraintdef(k.oid))
from pg_constraint k
join pg_class c on c.oid = k.conrelid
where k.connamespace = 'public'::regnamespace and k.contype in ('c', 'f')
    and not c.relispartition
union all
select format('policy on %s: %s', tablename, regexp_replace(qual, '\\s+', ' ', 'g'))
from pg_policies where schemaname = 'public'
union all
select format('grant %s on %s to %s', privilege_type, table_name, grantee)
from information_schema.role_table_grants where starts_with(grantee, 'headrace_')
union all
select format('grant %s (%s) on %s to %s', privilege_type, column_name, table_name, grantee)
from information_schema.role_column_grants c
where starts_with(grantee, 'headrace_') and not exists (
    select from information_schema.role_table_grants t
    where t.grantee = c.grantee and t.table_name = c.table_name
        and t.privilege_type = c.privilege_type)
union all
select format('function %s', p.oid::regprocedure)
from pg_proc p
where p.pronamespace = 'public'::regnamespace
    and not exists (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')
order by 1
"""


async def test_what_is_migrated_is_what_is_declared(database: FreshDatabase) -> None:
    """A migrated schema equals declared_schema.txt (DECLARE_SCHEMA=1 writes it)."""
    connection = await asyncpg.connect(database.owner_url)
    found = "\n".join(row["line"] for row in await connection.fetch(CATALOG)) + "\n"
    await connection.close()
    if os.environ.get("DECLARE_SCHEMA"):
        DECLARED.write_text(found, encoding="utf-8")
    assert found == DECLARED.read_text(encoding="utf-8")


async def test_migrating_at_once_and_again_changes_nothing(
    postgres_server: EmbeddedPostgres,
) -> None:
    """Concurrent migrations and repeated ones succeed."""
    name = "migrated_at_once"
    await create_database(postgres_server, name)
    url = postgres_server.urls(name).owner
    assert await asyncio.gather(*(upgrade(url) for _ in range(4))) == [head_revision()] * 4
    assert await upgrade(url) == head_revision()


async def test_a_migration_gives_way_to_who_is_at_work(postgres_server: EmbeddedPostgres) -> None:
    """A migration releases its locks while a table is busy, and is applied later."""
    name = "migrated_at_work"
    await create_database(postgres_server, name)
    url = postgres_server.urls(name).owner
    await migrate_to(url, "0002")
    busy = await asyncpg.connect(url)
    with capture_logs() as logs:
        transaction = busy.transaction()
        await transaction.start()
        await busy.execute("lock table documents in access share mode")
        migrating = asyncio.create_task(upgrade(url))
        await eventually(lambda: logs, "the migration gives way")
        await transaction.rollback()
        assert await migrating == head_revision()
    assert {line["event"] for line in logs} == {"migration.postponed"}
    await busy.close()


async def test_only_the_owner_may_migrate(postgres_server: EmbeddedPostgres) -> None:
    """The worker's role can't migrate, and the error says so in one line."""
    name = "migrated_by_nobody"
    await create_database(postgres_server, name)
    await migrate_to(postgres_server.urls(name).owner, "0004")
    with pytest.raises(ConfigurationError, match="Postgres denied permission: permission denied"):
        await upgrade(postgres_server.urls(name).worker)


async def test_who_is_shut_out_while_at_work_ends(database: FreshDatabase) -> None:
    """A running worker ends if a migration excludes its version."""
    async with opened(database.worker_url) as worker:
        watch = SchemaWatch(worker, interval=timedelta(milliseconds=10))
        watching = asyncio.create_task(watch.run(asyncio.Event()))
        await _migrated_by_the_future(database, "9999")
        with pytest.raises(ConfigurationError, match="upgrade headrace"):
            await asyncio.wait_for(watching, patience(10))


async def test_a_refused_read_of_the_schema_ends_no_process(
    database: FreshDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed connection does not end the schema watch."""
    looks: list[int] = []

    async def refuse(_: object) -> None:
        looks.append(1)
        raise asyncpg.InvalidPasswordError("password authentication failed")

    async with opened(database.worker_url) as worker:
        monkeypatch.setattr(worker, "_trusted_connection", lambda: refuse(worker))
        stop = asyncio.Event()
        watching = asyncio.create_task(
            SchemaWatch(worker, interval=timedelta(milliseconds=10)).run(stop)
        )
        await eventually(lambda: len(looks) > 2 or watching.done(), "it looks again and again")
        assert not watching.done()
        stop.set()
        await watching


async def test_an_empty_database_is_not_opened(postgres_server: EmbeddedPostgres) -> None:
    """The error names the command that migrates."""
    await create_database(postgres_server, "never_migrated")
    with pytest.raises(ConfigurationError, match="headrace migrate"):
        await Database.open(postgres_server.urls("never_migrated").worker)


@pytest.mark.parametrize(
    ("revision", "remedy"), [("0001", "headrace migrate"), ("9999", "upgrade")]
)
async def test_another_revision_is_not_opened(
    database: FreshDatabase, revision: str, remedy: str
) -> None:
    """A database with an older or newer schema is not opened."""
    connection = await asyncpg.connect(database.owner_url)
    await connection.execute("update alembic_version set version_num = $1", revision)
    await connection.close()
    with pytest.raises(ConfigurationError, match=remedy):
        await Database.open(database.worker_url)


async def test_a_newer_database_is_not_migrated(database: FreshDatabase) -> None:
    """A newer database is not migrated by older code."""
    connection = await asyncpg.connect(database.owner_url)
    await connection.execute("update alembic_version set version_num = '9999'")
    await connection.close()
    with pytest.raises(ConfigurationError, match="upgrade headrace"):
        await upgrade(database.owner_url)


@pytest.mark.parametrize("declared", [True, False])
async def test_a_newer_database_is_used_if_its_migration_allows(
    database: FreshDatabase, declared: bool
) -> None:
    """A newer schema is opened if its migration allows it, and is not migrated further."""
    await _migrated_by_the_future(database, head_revision() if declared else None)
    if declared:
        async with opened(database.worker_url) as worker, worker.connection() as connection:
            assert await connection.fetchval("select count(*) from models") == 0
        assert await upgrade(database.owner_url) == "9999"
        return
    with pytest.raises(ConfigurationError, match="upgrade headrace"):
        await Database.open(database.worker_url)


async def test_a_database_that_shuts_out_this_version_is_refused(database: FreshDatabase) -> None:
    """The error gives the revisions and the remedy."""
    await _migrated_by_the_future(database, "9998")
    for refused in (Database.open(database.worker_url), upgrade(database.owner_url)):
        with pytest.raises(ConfigurationError) as error:
            await refused
        assert str(error.value) == (
            "the database schema is at revision 9999, which needs a version that knows 9998, and "
            f"this one ends at {head_revision()}; upgrade headrace"
        )


async def _migrated_by_the_future(database: FreshDatabase, oldest_code: str | None) -> None:
    connection = await asyncpg.connect(database.owner_url)
    await connection.execute("update alembic_version set version_num = '9999'")
    if oldest_code is not None:
        await connection.execute(
            "insert into schema_revisions (revision, oldest_code) values ('9999', $1)", oldest_code
        )
    await connection.close()


async def test_what_a_migration_shut_out_stays_so(database: FreshDatabase) -> None:
    """Each revision since 0005 is stored with the oldest code that may use it."""
    connection = await asyncpg.connect(database.owner_url)
    rows = await connection.fetch("select * from schema_revisions order by revision")
    await connection.close()
    assert [row["revision"] for row in rows] == [one for one in revisions() if one >= "0005"]
    oldest = [row["oldest_code"] for row in rows]
    assert oldest == sorted(oldest)
    assert oldest[0] == "0005"


async def test_the_owner_is_refused_unless_it_takes_the_worker_role(
    database: FreshDatabase,
) -> None:
    """A superuser is refused unless it takes the worker's role."""
    with pytest.raises(ConfigurationError, match="is a superuser"):
        await Database.open(database.owner_url)
    worker = await Database.open(database.owner_url, role="headrace_worker")
    async with worker.connection() as connection:
        assert await connection.fetchval("select current_user") == "headrace_worker"
    await worker.close()


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("postgresql://nobody@127.0.0.1:1/none", Unavailable),
        ("mysql://nobody@127.0.0.1/none", ConfigurationError),
    ],
)
async def test_an_unreachable_server_is_named(url: str, error: type[Exception]) -> None:
    """The error names the setting."""
    with pytest.raises(error, match="HEADRACE_DATABASE_URL"):
        await Database.open(url)
    with pytest.raises(error, match="HEADRACE_DATABASE_URL"):
        await upgrade(url)


async def test_a_connection_cut_in_a_transaction_is_unavailable(database: FreshDatabase) -> None:
    """A connection cut in a transaction raises Unavailable, and the next one works."""
    async with opened(database.worker_url) as worker:
        with pytest.raises(Unavailable):
            await _cut_in_transaction(worker, database.owner_url)
        async with worker.scope(1) as connection:
            assert await connection.fetchval("select 1") == 1


async def _cut_in_transaction(worker: Database, owner_url: str) -> None:
    owner = await asyncpg.connect(owner_url)
    try:
        async with worker.scope(1) as connection:
            pid = await connection.fetchval("select pg_backend_pid()")
            await owner.execute("select pg_terminate_backend($1)", pid)
            await connection.fetch("select * from documents")
    finally:
        await owner.close()
