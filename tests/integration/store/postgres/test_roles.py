"""Postgres roles: policies apply to each, and rights are minimal."""
# ruff: noqa: S608 - names of tables come from the catalogue

from __future__ import annotations

from base64 import b64decode

import asyncpg
import pytest

from events.server.acl import Role
from runtime.errors import ConfigurationError
from store.generations import catalog
from store.postgres.pool import Database
from store.postgres.roles import GATEWAY, OPERATOR, WORKER, scram_verifier
from store.store import Store
from tests.support.databases import Database as FreshDatabase
from tests.support.writes import RECIPE, document_write, opened

NOBODY = (
    "create table mine (x int)",
    "truncate documents",
    "drop table chunks",
    "alter table chunks disable row level security",
    "alter table chunks no force row level security",
    "drop policy generation_rows on chunks",
    "set session authorization headrace",
    "create role mine superuser",
    "select rolpassword from pg_authid",
    "select * from projects",
    "update alembic_version set version_num = '0001'",
    "insert into models (name, dimensions) values ('x', 1)",
    "update embeddings set agent = ''",
    "copy chunks to program 'true'",
    "select pg_read_file('postgresql.conf')",
    "select key_id from api_keys",
    "select digest from api_keys",
    "insert into api_keys (key_id, digest, rights) values ('aaaaaaaa', sha256('x'), '{ask}')",
    "update api_keys set retired_at = null",
    "delete from api_keys",
)
"""Statements that no role may run."""

FORBIDDEN: dict[Role, tuple[str, ...]] = {
    Role.PUBLISHER: (
        "select * from documents",
        "select * from chunks",
        "select * from ledger",
        "select * from generations",
        "select content from contents",
        "select event from outbox",
        "delete from contents",
        "delete from outbox",
        "update outbox set event = ''",
        "delete from sources",
        "select secret from publisher_keys",
        "select * from vector_cache",
        "select claim_deployment('other', 9)",
        "select upkeep_marks()",
        "select list_projects()",
        "select end_silent_sessions('1 minute')",
        "select drop_vector_index('embeddings_hnsw_1_1_1')",
        "select admit('aaaaaaaa', sha256('x'))",
        "set role headrace_worker",
    ),
    Role.ANSWERER: (
        "insert into documents default values",
        "update documents set title = 'x'",
        "delete from documents",
        "update chunks set content = 'x'",
        "delete from chunks",
        "delete from embeddings",
        "delete from keyword_segments",
        "delete from keyword_postings",
        "update vector_indexes set watermark = 0",
        "update ledger set outcome = 'rejected'",
        "delete from ledger",
        "update generations set state = 'former'",
        "select * from contents",
        "select * from outbox",
        "select * from vector_cache",
        "select * from sources",
        "select * from source_documents('x')",
        "select * from archive_segments",
        "select * from publisher_keys",
        "select claim_deployment('other', 9)",
        "select upkeep_marks()",
        "select ensure_project('new', 'm', '{}', '1', 1)",
        "select ensure_model('m', 1)",
        "select end_silent_sessions('1 minute')",
        "select build_vector_index('embeddings_hnsw_1_1_1', 1, 1, 1, 1)",
        "select build_vector_index('embeddings_hnsw_1_1_1', 1, 1, 1, 1, 64)",
        "select admit('aaaaaaaa', sha256('x'))",
        "select * from model_costs",
        "delete from model_costs",
        "set role headrace_worker",
    ),
    Role.WORKER: (
        "insert into generations (project_id, state, model, tokens) values (1, 'live', 'm', 1)",
        "update generations set state = 'former'",
        "delete from generations",
        "delete from documents",
        "insert into publisher_keys (project_id, key_id, secret) values (1, 'k', 's')",
        "update deployment set id = repeat('a', 32)",
        "select admit('aaaaaaaa', sha256('x'))",
        "select add_api_key('aaaaaaaa', sha256('x'), null, '{operate}', null, null, null, null)",
        "set role headrace_operator",
    ),
    Role.OPERATOR: (
        "update generations set project_id = 1",
        "insert into generations (id) values (1)",
        "set role headrace_publisher",
    ),
    Role.GATEWAY: (
        "insert into documents default values",
        "delete from chunks",
        "update ledger set outcome = 'rejected'",
        "update generations set state = 'former'",
        "select content from contents",
        "select event from outbox",
        "delete from sources",
        "select secret from publisher_keys",
        "select * from vector_cache",
        "select claim_deployment('other', 9)",
        "select upkeep_marks()",
        "select end_silent_sessions('1 minute')",
        "select add_api_key('aaaaaaaa', sha256('x'), null, '{operate}', null, null, null, null)",
        "select list_api_keys(null)",
        "select retire_api_key('aaaaaaaa')",
        "set role headrace_worker",
        "set role headrace_answerer",
        "set role headrace_publisher",
    ),
}
"""Statements that a role may not run."""


def url_of(database: FreshDatabase, role: Role) -> str:
    """URL of the database as a role."""
    return database.worker_url.replace("headrace_worker@", f"headrace_{role}@")


@pytest.fixture
async def filled(database: FreshDatabase) -> FreshDatabase:
    """Projects alpha and beta with a document each."""
    async with opened(database.worker_url) as worker:
        store = Store(worker, RECIPE)
        for project in ("alpha", "beta"):
            await store.apply([document_write("a.md", 10, ["text"], project=project)])
            await store.put(project, f"content of {project}")
            await store.sources.register(project, "source", "source", "directory", "/x")
    return database


@pytest.mark.parametrize("role", Role)
async def test_no_role_may_do_more_in_postgres(filled: FreshDatabase, role: Role) -> None:
    """Every forbidden statement is refused because of a missing right."""
    connection = await asyncpg.connect(url_of(filled, role))
    allowed = [
        statement
        for statement in (*NOBODY, *FORBIDDEN[role])
        if not await _is_refused(connection, statement)
    ]
    await connection.close()
    assert allowed == []


async def _is_refused(connection: asyncpg.Connection, statement: str) -> bool:
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError:
        return True
    except asyncpg.InvalidParameterValueError as error:
        return "permission denied to set role" in str(error)
    finally:
        await transaction.rollback()
    return False


@pytest.mark.parametrize("role", Role)
async def test_policies_bind_every_role(filled: FreshDatabase, role: Role) -> None:
    """A readable table is empty without a project, and shows one project's rows with it."""
    owner = await asyncpg.connect(filled.owner_url)
    project_id = await owner.fetchval("select id from projects where name = 'alpha'")
    await owner.execute("select set_config('app.project_id', $1, false)", str(project_id))
    live = await owner.fetchval(
        "select id from generations where project_id = $1 and state = 'live'", project_id
    )
    await owner.close()
    connection = await asyncpg.connect(url_of(filled, role))
    for table, tenant in await _readable(connection):
        statement = f"select count(*), min({tenant}), max({tenant}) from {table}"
        assert (await connection.fetchrow(statement))[0] == 0, table
        async with connection.transaction():
            await connection.execute(
                "select set_config('app.project_id', $1, true),"
                " set_config('app.generation_id', $2, true)",
                str(project_id),
                str(live),
            )
            count, *found = await connection.fetchrow(statement)
        own = live if tenant == "generation_id" else project_id
        assert count == 0 or found == [own, own], table
    await connection.close()


async def _readable(connection: asyncpg.Connection) -> list[tuple[str, str]]:
    """Tables that the current role may read, with their tenant's column."""
    rows = await connection.fetch(
        "select c.relname, a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid "
        "where c.relkind in ('r', 'p') and c.relnamespace = 'public'::regnamespace "
        "and a.attname in ('project_id', 'generation_id') "
        "and (a.attname = 'generation_id' or c.relname <> 'vector_indexes') "
        "and has_column_privilege(c.oid, a.attnum, 'select')"
    )
    assert rows
    return [(row["relname"], row["attname"]) for row in rows]


@pytest.mark.parametrize("role", [Role.ANSWERER, Role.WORKER])
async def test_a_session_that_names_another_project_reads_it(
    filled: FreshDatabase, role: Role
) -> None:
    """The limit that docs/explanation/architecture.md names: policies stop mistakes, not SQL.

    What holds beside it: no rows without a project, nor by a generation of another project.
    """
    owner = await asyncpg.connect(filled.owner_url)
    ids = dict(await owner.fetch("select name, id from projects"))
    live: dict[str, int] = {}
    for project in ("alpha", "beta"):
        live[project] = await owner.fetchval(
            "select id from generations where project_id = $1 and state = 'live'", ids[project]
        )
    await owner.close()
    connection = await asyncpg.connect(url_of(filled, role))
    scopes = {("", "beta"): 0, ("alpha", "beta"): 0, ("alpha", "alpha"): 1, ("beta", "beta"): 1}
    for (project, generation), rows in scopes.items():
        async with connection.transaction():
            await connection.execute(
                "select set_config('app.project_id', $1, true),"
                " set_config('app.generation_id', $2, true), set_config('app.agent', '*', true)",
                str(ids.get(project, "")),
                str(live[generation]),
            )
            assert await connection.fetchval("select count(*) from chunks") == rows
    await connection.close()


async def test_a_process_takes_the_role_that_it_may(filled: FreshDatabase) -> None:
    """A process takes the requested role if its user may, and otherwise keeps its own."""
    for user, wanted, expected in (
        (Role.OPERATOR, WORKER, WORKER),
        (Role.WORKER, OPERATOR, WORKER),
        (Role.ANSWERER, WORKER, "headrace_answerer"),
        (Role.WORKER, "headrace_answerer", "headrace_answerer"),
        (Role.OPERATOR, GATEWAY, GATEWAY),
        (Role.GATEWAY, WORKER, GATEWAY),
    ):
        database = await Database.open(url_of(filled, user), role=wanted)
        async with database.connection() as connection:
            assert await connection.fetchval("select current_user") == expected
        await database.close()


async def test_a_refused_statement_is_reported_in_a_line(filled: FreshDatabase) -> None:
    """The error names the missing permission and the command that makes users."""
    async with opened(filled.worker_url) as worker:
        live = await Store(worker, RECIPE).generation("alpha")
        with pytest.raises(ConfigurationError, match=r"permission denied .*headrace access"):
            async with worker.scope(live.project_id) as connection:
                await catalog.begin(connection, live.project_id, RECIPE, {})


async def test_a_password_is_kept_as_the_server_would(database: FreshDatabase) -> None:
    """The verifier equals the server's for the same salt."""
    password = "correct horse 7 battery".replace(" ", "-")
    owner = await asyncpg.connect(database.owner_url)
    try:
        async with owner.transaction():
            await owner.execute("set local password_encryption = 'scram-sha-256'")
            await owner.execute(f"create role with_password password '{password}'")
            kept = await owner.fetchval(
                "select rolpassword from pg_authid where rolname = 'with_password'"
            )
            await owner.execute("drop role with_password")
    finally:
        await owner.close()
    iterations, _, salt = kept.split("$")[1].partition(":")
    assert scram_verifier(password, b64decode(salt), int(iterations)) == kept
