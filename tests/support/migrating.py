"""Databases of former versions."""

from __future__ import annotations

from functools import partial
from importlib.resources import files

import asyncpg
from alembic import command
from alembic.config import Config
from pgvector import HalfVector
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from runtime.embedded import EmbeddedPostgres
from store.postgres.connection import connect
from store.search.keyword.postings import Postings, encode_chunks, encode_inline
from store.search.keyword.tokenizer import terms
from tests.support.databases import create_database
from tests.support.writes import chunk_write, vector_of

__all__ = ["Leftover", "fill_0002", "migrate_to", "plain_owner_url"]

Leftover = tuple[int, str, str, str, str]
"""Project id, agent, uri, kind and text of a document with one chunk."""


async def migrate_to(owner_url: str, revision: str) -> None:
    """Apply the migrations up to a revision."""
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: connect(owner_url), poolclass=NullPool
    )
    async with engine.begin() as connection:
        await connection.run_sync(partial(_migrate_to, revision))
    await engine.dispose()


def _migrate_to(revision: str, connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(files("migrations")))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


async def plain_owner_url(server: EmbeddedPostgres, database: str) -> str:
    """Create a database that belongs to a role without privileges; returns the role's URL."""
    role = f"owner_of_{database}"
    await create_database(server, database)
    connection = await asyncpg.connect(server.urls(database).owner)
    await connection.execute("create extension if not exists vector")
    await connection.execute(f"create role {role} login")
    await connection.execute(f"alter database {database} owner to {role}")
    for other in ("worker", "publisher", "answerer", "operator", "gateway"):
        await connection.execute(
            f"do $$ begin create role headrace_{other} login;"
            " exception when duplicate_object then null; end $$"
        )
    await connection.execute("grant headrace_answerer to headrace_worker")
    await connection.execute("grant headrace_worker to headrace_operator")
    await connection.execute(
        "grant headrace_answerer, headrace_publisher to headrace_gateway"
        " with inherit true, set false"
    )
    await connection.execute("grant headrace_gateway to headrace_operator")
    await connection.execute(f"grant headrace_worker to {role}")
    await connection.close()
    user = server.urls(database).owner.partition("//")[2].partition("@")[0]
    return server.urls(database).owner.replace(f"//{user}@", f"//{role}@")


async def fill_0002(
    superuser_url: str, projects: tuple[str, ...], documents: tuple[Leftover, ...]
) -> None:
    """Insert rows of version 0.2: code with the model ``test/code``, others with ``test/model``.

    The vectors of the first project's ``test/model`` have an HNSW index.
    """
    connection = await asyncpg.connect(superuser_url)
    for project in projects:
        await connection.execute("insert into projects (name) values ($1)", project)
    for model in ("test/model", "test/code"):
        await connection.execute("insert into models (name, dimensions) values ($1, 8)", model)
    for position, document in enumerate(documents, 10):
        await _insert_0002(connection, position, document)
    await connection.execute(
        "create index embeddings_hnsw_1_1_1000 on embeddings "
        "using hnsw ((embedding::halfvec(8)) halfvec_cosine_ops) "
        "where project_id = 1 and model_id = 1 and chunk_id < 1000"
    )
    await connection.execute(
        "insert into vector_indexes (project_id, model_id, name, watermark, vectors) "
        "values (1, 1, 'embeddings_hnsw_1_1_1000', 1000, 1)"
    )
    await connection.close()


async def _insert_0002(connection: asyncpg.Connection, position: int, document: Leftover) -> None:
    project_id, agent, uri, kind, text = document
    chunk = chunk_write(0, text)
    model_id = 2 if kind == "code" else 1
    document_id = await connection.fetchval(
        "insert into documents (project_id, agent, uri, position, partition, kind, published_at) "
        "values ($1, $2, $3, $4, 0, $5, now()) returning id",
        project_id,
        agent,
        uri,
        position,
        kind,
    )
    chunk_id = await connection.fetchval(
        "insert into chunks (project_id, document_id, agent, model_id, ordinal, start_line, "
        "end_line, tokens, content_hash, content) values ($1, $2, $3, $4, 0, 1, 1, 5, $5, $6) "
        "returning id",
        project_id,
        document_id,
        agent,
        model_id,
        chunk.content_hash,
        text,
    )
    await connection.set_type_codec(
        "halfvec", schema="public", encoder=bytes, decoder=bytes, format="binary"
    )
    vector = HalfVector(vector_of(text)).to_binary()
    await connection.execute(
        "insert into embeddings values ($1, $2, $3, $4, $5)",
        *(project_id, chunk_id, model_id, agent, vector),
    )
    await connection.execute(
        "insert into vector_cache values ($1, $2, $3, $4)",
        *(project_id, model_id, chunk.content_hash, vector),
    )
    await connection.execute(
        "insert into ledger (project_id, partition, position, event_id, outcome) "
        "values ($1, 0, $2, 'event', 'indexed')",
        *(project_id, position),
    )
    postings = Postings.build([(chunk_id, terms(text))])
    await connection.execute(
        "insert into keyword_segments (project_id, chunks, terms, documents, postings) "
        "values ($1, 1, $2, $3, $4)",
        *(project_id, int(postings.lengths.sum())),
        *(encode_chunks(postings), encode_inline(postings)),
    )
