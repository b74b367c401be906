"""Rules for a project's indexes at rest."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg

from processors.chunking.registry import Chunking
from processors.chunking.types import CountTokens
from store.documents.digests import index_digest, stored_documents
from store.inspection.postings import survey_postings
from tests.support.indexes import assert_equals_oracle

__all__ = ["MODEL_TOKENS", "assert_nothing_left_over", "assert_whole", "generations", "live_digest"]

MODEL_TOKENS = 254
"""Longest text of the models that count tokens as the built-in one does."""

_OWNED_TABLES = """
    SELECT c.table_name
      FROM information_schema.columns c
      JOIN information_schema.tables t USING (table_schema, table_name)
     WHERE c.column_name = 'generation_id' AND c.table_schema = 'public'
       AND t.table_type = 'BASE TABLE'
       AND NOT (SELECT relispartition FROM pg_class WHERE oid = c.table_name::regclass)
"""


async def assert_whole(
    owner: asyncpg.Connection,
    project: str,
    oracle: Mapping[str, str],
    count: CountTokens,
    limit_tokens: int = MODEL_TOKENS,
) -> None:
    """Assert that the live generation is the fold of the log, with its rows as written.

    Chunks, lines, vectors (I1), digests, postings.
    """
    live = await _live(owner, project)
    chunking = Chunking.parse(live["chunking"])
    limit = chunking.limit(limit_tokens)
    await assert_equals_oracle(owner, project, oracle, limit, count, chunking.version)
    async with owner.transaction():
        async for one in stored_documents(owner, live["id"]):
            assert one.recorded == one.digest, f"{one.uri} isn't what was written"
            assert one.vectors + one.refused == one.chunks, one
    survey = await survey_postings(owner, live["id"])
    assert (survey.missing, survey.to_rewrite) == ((), [])


async def live_digest(owner: asyncpg.Connection, project: str) -> str:
    """Digest of the live generation, computed from its rows, in hex."""
    live = await _live(owner, project)
    async with owner.transaction():
        return index_digest([one async for one in stored_documents(owner, live["id"])]).hex()


async def generations(owner: asyncpg.Connection, project: str) -> dict[int, str]:
    """State by id, oldest first."""
    rows = await owner.fetch(
        "SELECT g.id, g.state FROM generations g JOIN projects p ON p.id = g.project_id"
        " WHERE p.name = $1 ORDER BY g.id",
        project,
    )
    return {row["id"]: row["state"] for row in rows}


async def assert_nothing_left_over(owner: asyncpg.Connection) -> None:
    """Assert that no rows and no HNSW index of a missing generation exist."""
    tables = [row["table_name"] for row in await owner.fetch(_OWNED_TABLES)]
    assert {"documents", "chunks", "embeddings", "keyword_segments"} <= set(tables)
    for table in tables:
        left = await owner.fetchval(
            f"SELECT count(*) FROM {table} t"  # noqa: S608  # names from the catalog
            " WHERE NOT EXISTS (SELECT FROM generations g WHERE g.id = t.generation_id)"
        )
        assert left == 0, f"{left} rows of dropped generations in {table}"
    indexes = await owner.fetch(
        "SELECT indexname FROM pg_indexes WHERE indexname LIKE 'embeddings_hnsw_%'"
        " AND NOT EXISTS (SELECT FROM generations g"
        " WHERE g.id = split_part(indexname, '_', 3)::int)"
    )
    assert not indexes


async def _live(owner: asyncpg.Connection, project: str) -> asyncpg.Record:
    return await owner.fetchrow(
        "SELECT g.* FROM generations g JOIN projects p ON p.id = g.project_id"
        " WHERE p.name = $1 AND g.state = 'live'",
        project,
    )
