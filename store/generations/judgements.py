"""Judgements of results: what agents did with the passages of answers."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from store.generations import catalog
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database

__all__ = ["KEPT_JUDGEMENTS", "Judgements", "StoredJudgement"]

_QUERIES = named("judgements")

KEPT_JUDGEMENTS = 10_000
"""Most judgements of a project; the oldest leave first."""


@dataclass(frozen=True, slots=True)
class StoredJudgement:
    """A verdict on one passage, with the question that it was a result of.

    ``agent`` is empty for an asker without one. ``rank`` counts from 1, and so do the lines. The
    text has no operators; ``filters`` are those of the question.
    """

    query_id: str
    agent: str
    text: str
    mode: str
    filters: Mapping[str, Any]
    uri: str
    start_line: int
    end_line: int
    rank: int
    verdict: str
    judged_at: datetime


class Judgements:
    """The judgements of a deployment.

    Every method raises ``Unavailable`` if Postgres cannot be reached.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, project_id: int, judgements: Mapping[str, StoredJudgement]) -> int:
        """Keep judgements by event id, each once; return the number of new ones."""
        rows = [
            asdict(judgement) | {"event_id": event_id, "judged_at": judgement.judged_at.isoformat()}
            for event_id, judgement in judgements.items()
        ]
        async with self._database.scope(project_id) as connection:
            added: int = await connection.fetchval(
                _QUERIES["add_judgements"], project_id, json.dumps(rows)
            )
            await connection.execute(
                _QUERIES["drop_oldest_judgements"], project_id, KEPT_JUDGEMENTS
            )
        return added

    async def of(self, project_id: int) -> list[StoredJudgement]:
        """Return the judgements of passages whose documents still exist, oldest first.

        A private document counts if the asker may see it.
        """
        async with self._database.scope(project_id) as connection:
            live = await catalog.live(connection, project_id)
        async with self._database.scope(project_id, EVERY_AGENT, live.id) as connection:
            rows: Sequence[Any] = await connection.fetch(
                _QUERIES["list_judgements"], project_id, live.id
            )
        return [StoredJudgement(**{**row, "filters": json.loads(row["filters"])}) for row in rows]

    async def drop(self, project_id: int, uris: Collection[str]) -> int:
        """Delete the judgements of questions that found these documents; return their number."""
        async with self._database.scope(project_id) as connection:
            return int(
                await connection.fetchval(_QUERIES["drop_judgements_of"], project_id, list(uris))
            )
