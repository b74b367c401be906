"""Stored documents of one generation, ready to be written to another."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from store.documents.digests import document_digest
from store.generations.catalog import Generation
from store.postgres.named_queries import named
from store.postgres.pool import EVERY_AGENT, Database
from store.types import ChunkWrite, DocumentWrite, origin_of

__all__ = ["CopiedDocument", "copied"]

_QUERIES = named("copy")


@dataclass(frozen=True, slots=True)
class CopiedDocument:
    """A stored document as a write to another generation.

    ``whole``: the rows match the digest that their writer recorded (documents without a recorded
    digest, from before digests existed, are assumed to match), and every vector is available, by
    the model that the other generation's recipe names. If only that one has contexts, nothing is
    whole: contexts need the headers of the chunks.
    """

    write: DocumentWrite
    whole: bool


async def copied(
    database: Database,
    project: str,
    generation: Generation,
    keys: Sequence[tuple[str, str]],
    into: Generation,
) -> list[CopiedDocument]:
    """Stored documents, by agent and uri, as writes to another generation.

    A vector is left out if the cache has it. Documents that have no row are absent.

    Raises:
        Unavailable: Postgres cannot be reached.
    """
    scope = generation.project_id, EVERY_AGENT, generation.id
    agents, uris = [agent for agent, _ in keys], [uri for _, uri in keys]
    async with database.scope(*scope) as connection:
        documents = await connection.fetch(
            _QUERIES["copied_documents"], generation.id, agents, uris
        )
        ids = [row["id"] for row in documents]
        sql = _QUERIES["copied_chunks"].format(generation_id=int(generation.id))
        rows = await connection.fetch(sql, generation.id, generation.project_id, ids)
    chunks: defaultdict[int, list[ChunkWrite]] = defaultdict(list)
    models = {row["id"]: into.recipe.model_of(row["kind"]) for row in documents}
    # a generation without contexts keeps no headers of its chunks
    headerless = bool(into.recipe.context) and not generation.recipe.context
    vectorless: set[int] = set(ids if headerless else ())
    for row in rows:
        values = dict(row)
        document_id = values.pop("document_id")
        cached = values.pop("cached")
        chunks[document_id].append(_chunk(values))
        has_vector = cached or values["vector"] is not None
        if values["model"] != models[document_id] or not has_vector:
            vectorless.add(document_id)
    return [
        _copied(row, _write(project, row, chunks[row["id"]], into.id), row["id"] not in vectorless)
        for row in documents
    ]


def _copied(row: Mapping[str, Any], write: DocumentWrite, vectors: bool) -> CopiedDocument:
    recorded = row["digest"]
    return CopiedDocument(
        write, vectors and (recorded is None or recorded == document_digest(write))
    )


def _chunk(values: dict[str, Any]) -> ChunkWrite:
    vector = None if values["vector"] is None else values["vector"].to_numpy()
    locator = None if values["locator"] is None else json.loads(values["locator"])
    headings = tuple(values["heading_path"])
    return ChunkWrite(**values | {"heading_path": headings, "vector": vector, "locator": locator})


def _write(
    project: str, row: Mapping[str, Any], chunks: Sequence[ChunkWrite], generation_id: int
) -> DocumentWrite:
    return DocumentWrite(
        event_id="",
        project=project,
        agent=row["agent"] or None,
        uri=row["uri"],
        change="delete" if row["deleted"] else "upsert",
        position=row["position"],
        partition=row["partition"],
        published_at=row["published_at"],
        content_hash=row["content_hash"],
        kind=row["kind"],
        media_type=row["media_type"],
        title=row["title"],
        commit=row["commit"],
        permalink_template=row["permalink_template"],
        collections=tuple(row["collections"]),
        metadata=json.loads(row["metadata"]),
        chunks=tuple(chunks),
        generation_id=generation_id,
        origin=origin_of(row),
    )
