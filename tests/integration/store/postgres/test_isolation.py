"""Row-level security, with hand-written queries as two roles."""
# ruff: noqa: S608 - names of tables come from here and from the catalogue

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import asyncpg
import pytest

from runtime.embedded import EmbeddedPostgres
from store.generations.catalog import Generation, Projects
from store.store import Store
from tests.support.databases import Database as FreshDatabase
from tests.support.databases import fresh_database
from tests.support.writes import RECIPE, add_generation, document_write, opened

PRIVATE = (
    "documents",
    "document_collections",
    "chunks",
    "embeddings",
    "pending_vectors",
    "refused_vectors",
    "chunk_contexts",
)
INDEX = (
    "chunk_contexts",
    "chunks",
    "collections",
    "document_collections",
    "documents",
    "embeddings",
    "keyword_postings",
    "keyword_segments",
    "keyword_vocabulary",
    "keyword_words",
    "pending_vectors",
    "refused_vectors",
    "vector_indexes",
)
PENDING = (
    "insert into pending_vectors select generation_id, id, agent, position, partition, position, "
    "1, '{1}', '{header}' from documents where generation_id = $1"
)
REFUSED = (
    "insert into refused_vectors select generation_id, id, agent, 1, 'reason' from chunks "
    "where generation_id = $1"
)
CONTEXTS = (
    "insert into chunk_contexts select generation_id, id, document_id, agent, 'header' from chunks "
    "where generation_id = $1"
)
SCOPE = (
    "select set_config('app.project_id', $1, true), set_config('app.agent', $2, true), "
    "set_config('app.generation_id', $3, true)"
)
FOREIGN_WRITES = (
    (
        "insert into sources (project_id, id, key, name, kind, location) "
        "values ($1, md5('x'), 'x', 'x', '', '')"
    ),
    (
        "insert into generations (project_id, state, model, chunking, tokens) "
        "values ($1, 'building', 'm', '1', 1)"
    ),
)


@dataclass(frozen=True)
class Tenant:
    """Project with its live generation and another one."""

    project_id: int
    live: Generation
    other: Generation


Tenants = dict[str, Tenant]


@pytest.fixture(scope="module")
async def database(postgres_server: EmbeddedPostgres) -> AsyncIterator[FreshDatabase]:
    """Database of all tests of this module: what they write is refused or rolled back."""
    async with fresh_database(postgres_server) as fresh:
        yield fresh


@pytest.fixture(scope="module")
async def tenants(database: FreshDatabase) -> Tenants:
    """Projects alpha and beta with two generations each, with a shared and a private document."""
    async with opened(database.operator_url) as worker:
        store = Store(worker, RECIPE)
        found = {}
        for project in ("alpha", "beta"):
            writes = [
                document_write("a", 10, ["shared"], project=project, collections=("c",)),
                document_write(
                    "a", 11, ["private"], project=project, agent="ann", collections=("c",)
                ),
            ]
            await store.apply(writes)
            await store.put(project, f"content of {project}")
            for agent in ("", "ann"):
                await store.sources.register(project, "s", "s", "directory", "/s", agent=agent)
            live = await store.generation(project)
            other = await add_generation(worker, store, project)
            await store.rebuild(other, writes)
            found[project] = Tenant(live.project_id, live, other)
    await _fill_the_rest(database, found)
    return found


async def _fill_the_rest(database: FreshDatabase, tenants: Tenants) -> None:
    """Insert rows into the index tables that small documents leave empty."""
    owner = await asyncpg.connect(database.owner_url)
    for tenant in tenants.values():
        for generation in (tenant.live, tenant.other):
            for statement in (
                "insert into keyword_postings values ($1, 1, 1, '')",
                "insert into keyword_vocabulary values ($1, 4, 'word')",
                "insert into vector_indexes values ($1, 1, 'none', 0, 0)",
                PENDING,
                REFUSED,
                CONTEXTS,
            ):
                await owner.execute(statement, generation.id)
    await owner.close()


@pytest.fixture(params=["operator", "plain owner"])
async def bound(
    request: pytest.FixtureRequest, database: FreshDatabase, tenants: Tenants
) -> AsyncIterator[asyncpg.Connection]:
    """Connection that policies restrict: an operator's, or a table owner's without privileges."""
    if request.param == "operator":
        connection = await asyncpg.connect(database.operator_url)
    else:
        connection = await asyncpg.connect(database.owner_url)
        await connection.execute(f"set role {await _owner_of_tables(connection)}")
    yield connection
    await connection.close()


async def _owner_of_tables(connection: asyncpg.Connection) -> str:
    """Name of a role without privileges, which owns the tables from the first call on."""
    role = f"plain_{await connection.fetchval('select current_database()')}"
    if not await connection.fetchval("select 1 from pg_roles where rolname = $1", role):
        await connection.execute(f"create role {role}")
        for table in (*await _tables_with(connection, "project_id"), *INDEX):
            await connection.execute(f"alter table {table} owner to {role}")
    return role


async def _tables_with(connection: asyncpg.Connection, column: str) -> list[str]:
    rows = await connection.fetch(
        "select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid "
        "where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace "
        "and not c.relispartition and a.attname = $1 order by 1",
        column,
    )
    return [row["relname"] for row in rows]


async def _enter(
    connection: asyncpg.Connection, project_id: object, agent: str, generation_id: object
) -> None:
    await connection.execute(SCOPE, str(project_id), agent, str(generation_id))


async def _assert_refused(
    connection: asyncpg.Connection, scope: tuple[int, int], statement: str, argument: object
) -> None:
    """Assert that a policy refuses the statement of agent ann in the scope."""
    project_id, generation_id = scope
    transaction = connection.transaction()
    await transaction.start()
    await _enter(connection, project_id, "ann", generation_id)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
        await connection.execute(statement, argument)
    await transaction.rollback()


async def test_every_table_of_tenants_forces_row_level_security(database: FreshDatabase) -> None:
    """Every table with a project_id or generation_id forces row-level security."""
    connection = await asyncpg.connect(database.owner_url)
    of_projects = await _tables_with(connection, "project_id")
    of_generations = await _tables_with(connection, "generation_id")
    fenced = await connection.fetch(
        "select relname from pg_class c where relrowsecurity and relforcerowsecurity "
        "and exists (select from pg_policy p where p.polrelid = c.oid) order by 1"
    )
    await connection.close()
    assert "generations" in of_projects
    assert of_generations == list(INDEX)
    assert [row["relname"] for row in fenced] == sorted(of_projects + of_generations)


async def test_no_role_reaches_a_partition(database: FreshDatabase) -> None:
    """Partitions force row-level security without a policy, and no role has a right to them."""
    connection = await asyncpg.connect(database.owner_url)
    partitions = await connection.fetch(
        "select c.relname, c.relrowsecurity and c.relforcerowsecurity as is_fenced, "
        "exists (select from pg_policy p where p.polrelid = c.oid) as has_policy, "
        "exists (select from information_schema.role_table_grants g "
        "where g.table_name = c.relname and starts_with(g.grantee, 'headrace_')) as is_granted "
        "from pg_class c where c.relispartition and c.relkind in ('r', 'p')"
    )
    await connection.close()
    assert len(partitions) > 64
    assert {tuple(row)[1:] for row in partitions} == {(True, False, False)}


async def test_every_key_between_tenant_tables_holds_the_tenant(database: FreshDatabase) -> None:
    """Every unique and foreign key of tenant tables contains the tenant.

    The only exception is a generation's own number, which no worker may choose.
    """
    connection = await asyncpg.connect(database.owner_url)
    rows = await connection.fetch(
        "select c.conrelid::regclass::text || '.' || c.conname as name from pg_constraint c "
        "join pg_attribute p on p.attrelid = c.conrelid "
        "and p.attname in ('project_id', 'generation_id') "
        "where c.contype in ('p', 'u', 'f') and not p.attnum = any (c.conkey) "
        "and c.confrelid <> 'models'::regclass"
    )
    await connection.close()
    assert [row["name"] for row in rows] == ["generations.generations_pkey"]


@pytest.mark.parametrize("project", [None, "", "999999"])
async def test_without_a_project_every_table_looks_empty(
    bound: asyncpg.Connection, tenants: Tenants, project: str | None
) -> None:
    """Without a valid project every table looks empty."""
    for table in (*await _tables_with(bound, "project_id"), *INDEX):
        async with bound.transaction():
            if project is not None:
                await _enter(bound, project, "ann", tenants["alpha"].live.id)
            assert not await bound.fetch(f"select * from {table}"), table


@pytest.mark.parametrize("generation", ["", "999999"])
async def test_without_a_generation_the_index_looks_empty(
    bound: asyncpg.Connection, tenants: Tenants, generation: str
) -> None:
    """Without a valid generation the index looks empty."""
    for table in INDEX:
        async with bound.transaction():
            await _enter(bound, tenants["alpha"].project_id, "ann", generation)
            assert not await bound.fetch(f"select * from {table}"), table


async def test_a_project_shows_its_own_rows_only(
    bound: asyncpg.Connection, tenants: Tenants
) -> None:
    """A project shows its own rows only, also to a query that names another project."""
    alpha, beta = tenants["alpha"].project_id, tenants["beta"].project_id
    async with bound.transaction():
        await _enter(bound, alpha, "ann", tenants["alpha"].live.id)
        for table in await _tables_with(bound, "project_id"):
            found = await bound.fetch(f"select distinct project_id from {table}")
            assert {row["project_id"] for row in found} <= {alpha}, table
            foreign = await bound.fetch(
                f"select * from {table} where project_id = $1 or true", beta
            )
            assert all(row["project_id"] == alpha for row in foreign), table


async def test_a_generation_shows_its_own_rows_only(
    bound: asyncpg.Connection, tenants: Tenants
) -> None:
    """A generation shows its own rows only, also within the same project."""
    alpha, beta = tenants["alpha"], tenants["beta"]
    for own in (alpha.live, alpha.other):
        async with bound.transaction():
            await _enter(bound, alpha.project_id, "ann", own.id)
            for table in INDEX:
                found = await bound.fetch(
                    f"select distinct generation_id from {table} "
                    "where generation_id = any ($1::int[]) or true",
                    [alpha.live.id, alpha.other.id, beta.live.id],
                )
                assert [row["generation_id"] for row in found] == [own.id], table


async def test_a_foreign_generation_shows_and_loses_nothing(
    bound: asyncpg.Connection, tenants: Tenants
) -> None:
    """Another project's generation looks empty, and a delete removes nothing from it."""
    for table in INDEX:
        async with bound.transaction():
            await _enter(bound, tenants["alpha"].project_id, "ann", tenants["beta"].live.id)
            assert not await bound.fetch(f"select * from {table}"), table
            assert await bound.execute(f"delete from {table}") == "DELETE 0", table


@pytest.mark.parametrize("own", ["live", "other"])
@pytest.mark.parametrize("scope", ["own generation", "foreign generation"])
async def test_no_row_can_be_put_into_a_foreign_generation(
    bound: asyncpg.Connection, database: FreshDatabase, tenants: Tenants, scope: str, own: str
) -> None:
    """Rows of another project's generation can't be inserted, in any scope."""
    alpha, beta = tenants["alpha"], tenants["beta"]
    claimed = getattr(alpha, own) if scope == "own generation" else getattr(beta, own)
    for table in INDEX:
        rows = await _rows_of(database, table, beta.live.id)
        assert rows, table
        for row in rows:
            await _assert_refused(
                bound,
                (alpha.project_id, claimed.id),
                f"insert into {table} overriding system value "
                f"select * from jsonb_populate_record(null::{table}, $1::jsonb)",
                row,
            )


async def _rows_of(database: FreshDatabase, table: str, generation_id: int) -> Sequence[str]:
    owner = await asyncpg.connect(database.owner_url)
    rows = await owner.fetch(
        f"select to_jsonb(t)::text as row from {table} t where generation_id = $1", generation_id
    )
    await owner.close()
    return [row["row"] for row in rows]


async def test_no_row_can_be_moved_to_a_foreign_generation(
    bound: asyncpg.Connection, tenants: Tenants
) -> None:
    """Rows can't be moved to another generation, even of the same project."""
    alpha, beta = tenants["alpha"], tenants["beta"]
    for target in (beta.live, alpha.other):
        for table in ("chunks", "documents", "keyword_vocabulary", "vector_indexes"):
            scope = alpha.project_id, alpha.live.id
            statement = f"update {table} set generation_id = $1"
            await _assert_refused(bound, scope, statement, target.id)


@pytest.mark.parametrize(("agent", "count"), [("", 1), ("bob", 1), ("ann", 2)])
async def test_private_rows_show_to_their_agent_only(
    bound: asyncpg.Connection, tenants: Tenants, agent: str, count: int
) -> None:
    """Private rows are visible to their agent only, in every table and generation."""
    alpha = tenants["alpha"]
    for generation in (alpha.live, alpha.other):
        async with bound.transaction():
            await _enter(bound, alpha.project_id, agent, generation.id)
            for table in (*PRIVATE, "sources"):
                found = await bound.fetchval(f"select count(*) from {table}")
                assert found == count, table


async def test_an_operator_can_not_write_into_another_project(
    database: FreshDatabase, tenants: Tenants
) -> None:
    """Writes into another project are refused."""
    connection = await asyncpg.connect(database.operator_url)
    for statement in FOREIGN_WRITES:
        scope = tenants["alpha"].project_id, tenants["alpha"].live.id
        await _assert_refused(connection, scope, statement, tenants["beta"].project_id)
    await connection.close()


async def test_a_foreign_generation_can_be_neither_switched_nor_dropped(
    bound: asyncpg.Connection, tenants: Tenants
) -> None:
    """Another project's generation can be neither switched nor dropped."""
    foreign = tenants["beta"].other.id
    async with bound.transaction():
        await _enter(bound, tenants["alpha"].project_id, "", foreign)
        update = "update generations set state = 'former' where id = $1"
        assert await bound.execute(update, foreign) == "UPDATE 0"
        assert await bound.execute("delete from generations where id = $1", foreign) == "DELETE 0"


@pytest.mark.parametrize(
    "statement",
    [
        "select * from projects",
        "alter table chunks disable row level security",
        "drop policy generation_rows on chunks",
        "create table mine (x int)",
        "truncate chunks",
        "update embeddings set agent = ''",
        "insert into models (name, dimensions) values ('x', 1)",
        "update generations set project_id = 1",
        "update generations set state = 'former'",
        "delete from generations",
        "delete from documents",
        "update generations set id = 1",
        "insert into generations (id) values (1)",
    ],
)
async def test_a_worker_has_no_right_that_it_does_not_need(
    database: FreshDatabase, statement: str
) -> None:
    """A worker can't lift the policies, nor use rights that it does not need."""
    connection = await asyncpg.connect(database.worker_url)
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
    await connection.close()


_MANY_CHUNKS = """insert into chunks (generation_id, agent, document_id, ordinal, start_line,
    end_line, tokens, heading_path, content_hash, content)
    select c.generation_id, c.agent, c.document_id, 1000 + n, 1, 1, 1, '{}', c.content_hash, 'text'
    from (select * from chunks where generation_id = $1 order by id limit 1) c
    cross join generate_series(1, 2000) n"""
"""With few rows, any index of a table is as good as another."""


@pytest.fixture(scope="module")
async def filled(database: FreshDatabase, tenants: Tenants) -> Tenant:
    """Tenant whose other generation, which no other test reads, has many chunks."""
    beta = tenants["beta"]
    owner = await asyncpg.connect(database.owner_url)
    async with owner.transaction():
        await _enter(owner, beta.project_id, "*", beta.other.id)
        await owner.execute(_MANY_CHUNKS, beta.other.id)
    await owner.execute("analyze chunks")
    await owner.close()
    return beta


@pytest.mark.parametrize(
    ("statement", "index"),
    [
        ("select * from documents where generation_id = $1 and agent = '' and uri = 'a'", "ri_key"),
        ("select * from chunks where generation_id = $1 and document_id = 1", "chunks_by_document"),
        ("select * from chunks where generation_id = $1 and id = any ('{1,2}')", "chunks_pkey"),
        (
            "select * from embeddings where generation_id = $1 and chunk_id >= 1",
            "_pkey on embeddings_",
        ),
        ("delete from chunks where generation_id = $1 and id = any ('{1,2}')", "chunks_pkey"),
        (
            "select * from keyword_postings where generation_id = $1 and term = any ('{1,2}')",
            "keyword_postings_pkey",
        ),
    ],
)
async def test_plans_keep_their_indexes_under_the_policies(
    database: FreshDatabase, filled: Tenant, statement: str, index: str
) -> None:
    """Queries by key use their indexes under the policies."""
    connection = await asyncpg.connect(database.worker_url)
    async with connection.transaction():
        await connection.execute("set local enable_seqscan = off")
        await _enter(connection, filled.project_id, "ann", filled.other.id)
        plan = await connection.fetch("explain " + statement.replace("$1", str(filled.other.id)))
    await connection.close()
    text = "\n".join(row[0] for row in plan)
    assert index in text, text
    assert "Seq Scan" not in text, text


async def test_names_of_projects_are_found_by_their_function_only(
    database: FreshDatabase, tenants: Tenants
) -> None:
    """The function lists names and numbers of the projects."""
    async with opened(database.worker_url) as worker:
        found = await Projects(worker).all()
    assert found == {name: tenant.project_id for name, tenant in tenants.items()}


async def _seen(connection: asyncpg.Connection) -> set[tuple[int, str]]:
    """Generation and agent of every document that a connection shows."""
    rows = await connection.fetch("select generation_id, agent from documents")
    return {(row["generation_id"], row["agent"]) for row in rows}


async def test_the_scope_of_a_reading_shows_to_no_other_use_of_the_session(
    database: FreshDatabase, tenants: Tenants
) -> None:
    """The next use is in its own scope or in none, even after one that was rolled back or cut."""
    alpha, beta = tenants["alpha"], tenants["beta"]
    of_ann = {(alpha.live.id, ""), (alpha.live.id, "ann")}
    pids = set()
    async with opened(database.operator_url) as worker:
        for failure in (None, ZeroDivisionError, asyncio.CancelledError):
            for agent in ("ann", "ann/branch"):
                for _ in range(2):
                    async with worker.reading(alpha.project_id, agent, alpha.live.id) as reader:
                        assert await _seen(reader) == of_ann
                        pids.add(reader.get_server_pid())
                with contextlib.suppress(*filter(None, [failure])):
                    async with worker.scope(beta.project_id, "bob", beta.live.id) as writer:
                        assert await _seen(writer) == {(beta.live.id, "")}
                        pids.add(writer.get_server_pid())
                        if failure is not None:
                            raise failure
                async with worker.connection() as plain:
                    assert not await _seen(plain)
                    assert not await plain.fetchval("select current_setting('app.readable', true)")
                    pids.add(plain.get_server_pid())
                async with worker.reading(beta.project_id, None, beta.live.id) as reader:
                    assert await _seen(reader) == {(beta.live.id, "")}
                    pids.add(reader.get_server_pid())
    assert len(pids) == 1
