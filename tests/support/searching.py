"""Store with a search, filled through the real write transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from events.models import Filters, Scalar
from store.generations.catalog import Generation, Recipe
from store.postgres.pool import Database
from store.search.search import Search
from store.store import Store
from store.types import Candidates, ChunkWrite, DocumentWrite, SearchRequest

__all__ = ["MODEL", "RECIPE", "Index", "unit_vectors"]

MODEL = "test/model"
RECIPE = Recipe(MODEL)
Vectors = npt.NDArray[np.float32]


def unit_vectors(seed: int, rows: int, dimensions: int, clusters: int = 20) -> Vectors:
    """Random vectors in clusters, like those of texts."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(clusters, dimensions))
    vectors = centres[rng.integers(0, clusters, rows)] + 0.8 * rng.normal(size=(rows, dimensions))
    unit: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


@dataclass
class Index:
    """Writes documents and searches them. Chunks are given as their texts."""

    database: Database
    store: Store
    search: Search
    positions: count[int] = field(default_factory=lambda: count(1))

    @classmethod
    def of(cls, database: Database) -> Index:
        return cls(database, Store(database, RECIPE), Search(database))

    def document(
        self,
        uri: str,
        chunks: Sequence[str],
        vectors: Vectors | None = None,
        *,
        project: str = "p",
        agent: str | None = None,
        kind: str = "text",
        collections: Sequence[str] = (),
        metadata: Mapping[str, Scalar] | None = None,
        media_type: str | None = None,
        symbols: Sequence[str | None] | None = None,
    ) -> DocumentWrite:
        position = next(self.positions)
        return DocumentWrite(
            event_id=f"event-{position}",
            project=project,
            agent=agent,
            uri=uri,
            change="upsert" if chunks else "delete",
            position=position,
            partition=0,
            published_at=datetime.now(UTC),
            kind=kind,
            media_type=media_type,
            collections=tuple(collections),
            metadata=dict(metadata or {}),
            chunks=tuple(
                ChunkWrite(
                    ordinal=i,
                    start_line=i + 1,
                    end_line=i + 1,
                    content=text,
                    content_hash=hashlib.sha256(text.encode()).digest(),
                    tokens=len(text) // 4,
                    symbol=None if symbols is None else symbols[i],
                    model="" if vectors is None else MODEL,
                    vector=None if vectors is None else vectors[i].astype(np.float16),
                )
                for i, text in enumerate(chunks)
            ),
        )

    async def write(self, uri: str, *chunks: str, **options: Any) -> None:
        """Write one document; without chunks, delete it."""
        await self.store.apply([self.document(uri, chunks, **options)])

    async def candidates(
        self,
        text: str | None = None,
        vector: Vectors | None = None,
        *,
        project: str = "p",
        agent: str | None = None,
        filters: Filters | None = None,
        limit: int = 10,
        defined: tuple[str, ...] = (),
    ) -> Candidates:
        vectors = {} if vector is None else {MODEL: vector}
        return await self.search.candidates(
            await self.search.live(project),
            SearchRequest(
                project, agent, text, vectors, filters or Filters(), limit, defined=defined
            ),
        )

    async def texts(self, found: Sequence[tuple[int, float]], **options: str | None) -> list[str]:
        """Contents of the found chunks, best first."""
        generation = await self.search.live(options.get("project") or "p")
        rows = await self.search.rows(generation, options.get("agent"), [i for i, _ in found])
        return [rows[chunk_id].content for chunk_id, _ in found if chunk_id in rows]

    async def live(self, project: str = "p") -> Generation:
        return await self.search.live(project)
