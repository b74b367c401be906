"""Statistics of a project, shown by ``status``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import asyncpg

from store.documents import ledger
from store.generations.catalog import enter_live, listed
from store.postgres.named_queries import named

__all__ = ["ProjectStatistics", "measure"]

_QUERIES = named("statistics")


@dataclass(frozen=True, slots=True)
class ProjectStatistics:
    """Counts, private documents included, and freshness: from publish to searchable by keyword.

    ``examples`` of the chunks are code examples. ``pending`` chunks have no vector yet; the texts
    of ``refused`` chunks are rejected by the model. ``contexts_waiting`` chunks wait for their
    context, and ``contexts_without`` have none because the language model wrote none.
    ``outcomes`` counts the ledger's entries.
    Freshness is that of the last 1,000 applied changes, or None if there are none. The counts are
    of the live generation, ``generation``; ``generations`` is the number of generations.
    """

    project: str
    documents: int
    tombstones: int
    chunks: int
    examples: int
    pending: int
    refused: int
    contexts_waiting: int
    contexts_without: int
    outcomes: Mapping[str, int]
    freshness_p50_ms: float | None
    freshness_p99_ms: float | None
    generation: int
    generations: int

    @property
    def coverage(self) -> float:
        """Share (0 to 1) of the chunks that have a vector; 1 if there are no chunks."""
        return 1.0 - (self.pending + self.refused) / self.chunks if self.chunks else 1.0


async def measure(
    connection: asyncpg.Connection, project_id: int, project: str
) -> ProjectStatistics:
    """Count in the live generation, in a scope of ``EVERY_AGENT``."""
    generations = await listed(connection, project_id)
    live = await enter_live(connection, project_id)
    counts = await connection.fetchrow(_QUERIES["count_rows"], live.id)
    outcomes = await ledger.count_outcomes(connection, project_id)
    p50_ms, p99_ms = await ledger.freshness(connection, project_id)
    return ProjectStatistics(
        project,
        counts["documents"],
        counts["tombstones"],
        counts["chunks"],
        counts["examples"],
        counts["pending"],
        counts["refused"],
        counts["contexts_waiting"],
        counts["contexts_without"],
        outcomes,
        p50_ms,
        p99_ms,
        live.id,
        len(generations),
    )
