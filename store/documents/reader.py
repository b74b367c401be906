"""Contents of the index by document, for display to users."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from events.names import LogPosition
from store.generations.catalog import Projects, enter_live
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database

__all__ = ["DocumentText", "Documents", "ListedChunk", "ListedDocument"]

_QUERIES = named("reader")
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document that is not deleted.

    ``token`` identifies its last change; ``pending`` counts its chunks without a vector so far.
    """

    uri: str
    agent: str
    kind: str
    title: str | None
    chunks: int
    pending: int
    token: str
    commit: str | None
    published_at: datetime


@dataclass(frozen=True, slots=True)
class ListedChunk:
    """A chunk of a document; lines are counted from 1."""

    start_line: int
    end_line: int
    page: int | None
    symbol: str | None
    heading_path: tuple[str, ...]
    tokens: int
    content: str


@dataclass(frozen=True, slots=True)
class DocumentText:
    """Everything that the index holds of a document. ``chunks`` are in the order of the text."""

    document: ListedDocument
    event_id: str | None
    updated_at: datetime
    media_type: str | None
    content_hash: str | None
    collections: tuple[str, ...]
    metadata: Mapping[str, Any]
    chunks: tuple[ListedChunk, ...]


class Documents:
    """Documents of live generations, including the private ones of every agent.

    Every method raises ``Unavailable`` if Postgres cannot be reached.
    """

    def __init__(self, database: Database, projects: Projects) -> None:
        self._database = database
        self._projects = projects

    async def listed(
        self, project: str, prefix: str = "", source_id: str | None = None
    ) -> AsyncIterator[ListedDocument]:
        """Documents whose uri begins with ``prefix``, by uri; empty if the project is unknown.

        ``source_id`` None: the documents of all sources.
        """
        project_id = await self._projects.find(project)
        after = "", ""
        while project_id is not None:
            async with self._database.scope(project_id, EVERY_AGENT) as connection:
                live = await enter_live(connection, project_id)
                rows = await connection.fetch(
                    _QUERIES["list_documents"], live.id, prefix, *after, _PAGE, source_id
                )
            for row in rows:
                yield _listed(row, row["chunks"])
            if len(rows) < _PAGE:
                return
            after = rows[-1]["uri"], rows[-1]["agent"]

    async def find(self, project: str, uri: str, agent: str = "") -> DocumentText | None:
        """Document that is shared, or private to ``agent``. Returns None if it does not exist."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return None
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            live = await enter_live(connection, project_id)
            row = await connection.fetchrow(
                _QUERIES["find_document"], live.id, agent, uri, project_id
            )
            if row is None:
                return None
            chunks = await connection.fetch(_QUERIES["document_chunks"], live.id, row["id"])
        return DocumentText(
            _listed(row, len(chunks)),
            row["event_id"],
            row["updated_at"],
            row["media_type"],
            row["content_hash"],
            tuple(row["collections"]),
            json.loads(row["metadata"]),
            tuple(_chunk(chunk) for chunk in chunks),
        )

    async def stored_uris(
        self, project: str, agent: str, *, uris: Collection[str] = (), prefix: str | None = None
    ) -> list[str]:
        """Stored uris that are in ``uris`` or begin with ``prefix``, deleted documents included."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return []
        async with self._database.scope(project_id, EVERY_AGENT) as connection:
            live = await enter_live(connection, project_id)
            rows = await connection.fetch(
                _QUERIES["stored_uris"], live.id, agent, list(uris), prefix
            )
        return [row["uri"] for row in rows]


def _listed(row: Mapping[str, Any], chunks: int) -> ListedDocument:
    return ListedDocument(
        row["uri"],
        row["agent"],
        row["kind"],
        row["title"],
        chunks,
        row["pending"],
        LogPosition(row["position"], row["partition"]).token,
        row["commit"],
        row["published_at"],
    )


def _chunk(row: Mapping[str, Any]) -> ListedChunk:
    return ListedChunk(
        row["start_line"],
        row["end_line"],
        row["page"],
        row["symbol"],
        tuple(row["heading_path"]),
        row["tokens"],
        row["content"],
    )
