"""Checks vectors against their chunks, their models and the cache."""

from __future__ import annotations

import json
from dataclasses import dataclass

import asyncpg

from store.generations import Generation
from store.named_queries import named

__all__ = ["LEAST_DISTANCE", "VectorFlaw", "find_vector_flaws"]

LEAST_DISTANCE = 0.05
"""Two embeddings of one text differ by less, even from different batches or servers (L2 distance of
unit vectors in half precision)."""

_QUERIES = named("inspecting")
_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class VectorFlaw:
    """A chunk whose vector is ``missing``, ``foreign`` (another model or width) or ``changed``.

    A vector that is pending, or whose text its model rejects, is not missing.
    """

    flaw: str
    agent: str
    uri: str
    ordinal: int
    chunk_id: int
    model: str | None
    content_hash: bytes


async def find_vector_flaws(
    connection: asyncpg.Connection, generation: Generation
) -> list[VectorFlaw]:
    """Compare every vector of a generation with its chunk, its model and the cache.

    The connection must be in a scope that sees every agent's rows.
    """
    recipe = generation.recipe
    rows = await connection.fetch(
        _QUERIES["vector_flaws"],
        generation.id,
        generation.project_id,
        recipe.model,
        json.dumps(dict(recipe.models)),
        LEAST_DISTANCE,
        timeout=_TIMEOUT_S,
    )
    return [VectorFlaw(**row) for row in rows]
