"""Row-level security, by hand-written queries in both roles."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from store.projects import Projects
from store.store import Store
from tests.support.databases import Database as FreshDatabase
from tests.support.writes import document_write, opened

PRIVATE = ("documents", "document_collections", "chunks", "embeddings")
SCOPE = "select set_config('app.project_id', $1, true), set_config('app.agent', $2, true)"

FOREIGN_WRITES = (
    "insert into collections (project_id, name) values ($1, 'x')",
    "update chunks set project_id = $1",
    "insert into source_states (project_id, source, state) values ($1, 'x', '{}')",
)


@pytest.fixture
async def projects(database: FreshDatabase) -> dict[str, int]:
    """Projects alpha and beta, each with a shared document and one that is private to ann."""
    async with opened(database.worker_url) as worker:
        store = Store(worker)
        for project in ("alpha", "beta"):
            await store.apply(
                [
                    document_write("a", 10, ["shared"], project=project, collections=("c",)),
                    document_write(
                        "a", 11, ["private"], project=project, agent="ann", collections=("c",)
                    ),
                ]
            )
            await store.put(project, f"content of {project}")
            await store.save_source_state(project, "s", {"project": project})
        return await Projects(worker).all()


@pytest.fixture(params=["worker", "plain owner"])
async def bound(
    request: pytest.FixtureRequest, database: FreshDatabase, projects: dict[str, int]
) -> AsyncIterator[asyncpg.Connection]:
    """A connection that policies bind: a worker's, or that of tables' owner who is no superuser."""
    if request.param == "worker":
        connection = await asyncpg.connect(database.worker_url)
    else:
        connection = await asyncpg.connect(database.owner_url)
        await _own_tables_as_plain_role(connection)
    yield connection
    await connection.close()


async def _own_tables_as_plain_role(connection: asyncpg.Connection) -> None:
    role = f"plain_{await connection.fetchval('select current_database()')}"
    await connection.execute(f"create role {role}")
    for table in await _tenant_tables(connection):
        await connection.execute(f"alter table {table} owner to {role}")
    await connection.execute(f"set role {role}")


async def _tenant_tables(connection: asyncpg.Connection) -> list[str]:
    rows = await connection.fetch(
        "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid "
        "where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace "
        "and a.attname = 'project_id' order by 1"
    )
    return [row["relname"] for row in rows]


async def test_every_table_of_tenants_forces_row_level_security(database: FreshDatabase) -> None:
    """Whoever adds a table with a project_id must fence it in."""
    connection = await asyncpg.connect(database.owner_url)
    tables = await _tenant_tables(connection)
    fenced = await connection.fetch(
        "select relname from pg_class c where relrowsecurity and relforcerowsecurity "
        "and exists (select from pg_policy p where p.polrelid = c.oid) order by 1"
    )
    await connection.close()
    assert len(tables) >= 9
    assert [row["relname"] for row in fenced] == tables


async def test_every_key_between_tenant_tables_holds_the_project(database: FreshDatabase) -> None:
    """No unique or foreign key can tie rows of two projects, or tell that another's exists."""
    connection = await asyncpg.connect(database.owner_url)
    rows = await connection.fetch(
        "select c.conrelid::regclass::text || '.' || c.conname as name from pg_constraint c "
        "join pg_attribute p on p.attrelid = c.conrelid and p.attname = 'project_id' "
        "where c.contype in ('p', 'u', 'f') and not p.attnum = any (c.conkey) "
        "and c.confrelid <> 'models'::regclass"
    )
    await connection.close()
    assert not rows


@pytest.mark.parametrize("project", [None, "", "999999"])
async def test_without_a_project_every_table_looks_empty(
    bound: asyncpg.Connection, project: str | None
) -> None:
    """Unset, empty and unknown: no rows, and no error."""
    for table in await _tenant_tables(bound):
        async with bound.transaction():
            if project is not None:
                await bound.execute(SCOPE, project, "ann")
            assert not await bound.fetch(f"select * from {table}"), table  # noqa: S608


async def test_a_project_shows_its_own_rows_only(
    bound: asyncpg.Connection, projects: dict[str, int]
) -> None:
    """Also to a query that asks for the other one by name."""
    alpha, beta = projects["alpha"], projects["beta"]
    tables = await _tenant_tables(bound)
    async with bound.transaction():
        await bound.execute(SCOPE, str(alpha), "ann")
        for table in tables:
            found = await bound.fetch(f"select distinct project_id from {table}")  # noqa: S608
            assert {row["project_id"] for row in found} <= {alpha}, table
            foreign = await bound.fetch(
                f"select * from {table} where project_id = $1 or true",  # noqa: S608
                beta,
            )
            assert all(row["project_id"] == alpha for row in foreign), table


@pytest.mark.parametrize(("agent", "count"), [("", 1), ("bob", 1), ("ann", 2)])
async def test_private_rows_show_to_their_agent_only(
    bound: asyncpg.Connection, projects: dict[str, int], agent: str, count: int
) -> None:
    """In every table that says what a private document holds."""
    async with bound.transaction():
        await bound.execute(SCOPE, str(projects["alpha"]), agent)
        for table in PRIVATE:
            found = await bound.fetchval(f"select count(*) from {table}")  # noqa: S608
            assert found == count, table


async def test_a_worker_can_not_write_into_another_project(
    database: FreshDatabase, projects: dict[str, int]
) -> None:
    """Neither by inserting there nor by moving a row."""
    connection = await asyncpg.connect(database.worker_url)
    for statement in FOREIGN_WRITES:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(SCOPE, str(projects["alpha"]), "")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(statement, projects["beta"])
        await transaction.rollback()
    await connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "select * from projects",
        "alter table chunks disable row level security",
        "drop policy project_rows on chunks",
        "create table mine (x int)",
        "truncate chunks",
        "update embeddings set agent = ''",
        "insert into models (name, dimensions) values ('x', 1)",
    ],
)
async def test_a_worker_has_no_right_that_it_does_not_need(
    database: FreshDatabase, statement: str
) -> None:
    """The worker role can't lift the fence, nor read names of tenants beyond its functions."""
    connection = await asyncpg.connect(database.worker_url)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
    await connection.close()


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("select * from documents where project_id = $1 and agent = '' and uri = 'a'", "uri_key"),
        ("select * from chunks where project_id = $1 and document_id = 1", "chunks_by_document"),
        ("select * from chunks where project_id = $1 and id = any ('{1,2}')", "chunks_pkey"),
        ("select * from embeddings where project_id = $1 and chunk_id >= 1", "embeddings_pkey"),
        ("delete from chunks where project_id = $1 and id = any ('{1,2}')", "chunks_pkey"),
    ],
)
async def test_plans_keep_their_indexes_under_the_policies(
    database: FreshDatabase, projects: dict[str, int], statement: str, index: str
) -> None:
    """What the store looks up by a key is found by its index, in a worker's role."""
    connection = await asyncpg.connect(database.worker_url)
    async with connection.transaction():
        await connection.execute("set local enable_seqscan = off")
        await connection.execute(SCOPE, str(projects["alpha"]), "ann")
        plan = await connection.fetch("explain " + statement.replace("$1", str(projects["alpha"])))
    await connection.close()
    text = "\n".join(row[0] for row in plan)
    assert index in text, text
    assert "Seq Scan" not in text, text
