"""Invariants I1, I2 and I5 of the fault plan, for an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import asyncpg
from redis.asyncio import Redis

from content.detection import kind_of, language_of
from events.client.publisher import Receipt
from events.names import LogPosition, Names
from events.streams.backlog import read_backlog
from processors.chunking import cut
from processors.chunking.types import CHUNKING_VERSION, CountTokens, Source

__all__ = ["assert_all_handled", "assert_equals_oracle", "assert_nothing_pending"]

Place = tuple[str, int, int, str]


async def assert_equals_oracle(
    connection: asyncpg.Connection,
    project: str,
    oracle: Mapping[str, str],
    limit_tokens: int,
    count: CountTokens,
    version: int = CHUNKING_VERSION,
) -> None:
    """I1: the chunks are those of each document's last change, each with one vector."""
    expected = {
        (uri, chunk.start_line, chunk.end_line, chunk.content)
        for uri, content in oracle.items()
        for chunk in cut(_source(uri, content, version), limit_tokens, count).chunks
    }
    stored = await _stored_chunks(connection, project)
    assert len(stored) == len(set(stored)), "a chunk is stored twice"
    assert set(stored) == expected, _difference(set(stored), expected)
    documents = await _documents(connection, project)
    assert documents == set(oracle), sorted(documents ^ set(oracle))


def _difference(stored: set[Place], expected: set[Place]) -> str:
    missing, foreign = sorted(expected - stored), sorted(stored - expected)
    counts = f"I1: {len(missing)} chunks are missing, {len(foreign)} are not what the log says"
    return f"{counts}: {[place[:3] for place in (*missing, *foreign)]}"


def _source(uri: str, content: str, version: int) -> Source:
    kind, language = kind_of(uri, None, content), language_of(uri, None, content)
    return Source(uri, content, kind, language, version=version)


async def _stored_chunks(connection: asyncpg.Connection, project: str) -> list[Place]:
    """Chunks joined with embeddings, so that only a chunk with one vector appears once."""
    rows = await connection.fetch(
        """
        SELECT d.uri, c.start_line, c.end_line, c.content
          FROM chunks c
          JOIN documents d ON d.id = c.document_id
          JOIN generations g ON g.id = d.generation_id AND g.state = 'live'
          JOIN projects p ON p.id = g.project_id
          JOIN embeddings e ON e.chunk_id = c.id
         WHERE p.name = $1 AND NOT d.deleted
        """,
        project,
    )
    return [tuple(row) for row in rows]


async def _documents(connection: asyncpg.Connection, project: str) -> set[str]:
    rows = await connection.fetch(
        """
        SELECT d.uri
          FROM documents d
          JOIN generations g ON g.id = d.generation_id AND g.state = 'live'
          JOIN projects p ON p.id = g.project_id
         WHERE p.name = $1 AND NOT d.deleted
        """,
        project,
    )
    return {row["uri"] for row in rows}


async def assert_all_handled(connection: asyncpg.Connection, receipts: Sequence[Receipt]) -> None:
    """I2: each acknowledged publish is applied, superseded or rejected."""
    rows = await connection.fetch("SELECT partition, position FROM ledger")
    handled = {(row["partition"], row["position"]) for row in rows}
    positions = [LogPosition.from_token(one.token) for one in receipts]
    missing = [one for one in positions if (one.partition, one.position) not in handled]
    assert not missing


async def assert_nothing_pending(redis: Redis, names: Names) -> None:
    """I5: there are no waiting entries, pending entries or dead letters."""
    for one in await read_backlog(redis, names):
        assert one.oldest_unacknowledged is None, one
        assert one.dead_letters == 0, one
