"""How far each source was published, so that the next sync publishes only what changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import asyncpg

from store.named_queries import named

__all__ = ["load", "save"]

_QUERIES = named("source_states")


async def load(
    connection: asyncpg.Connection, project_id: int, source: str
) -> dict[str, Any] | None:
    """What was saved last for a source, or None."""
    found = await connection.fetchval(_QUERIES["load_state"], project_id, source)
    return None if found is None else dict(json.loads(found))


async def save(
    connection: asyncpg.Connection, project_id: int, source: str, state: Mapping[str, Any]
) -> None:
    """Replace a source's state, any JSON object."""
    await connection.execute(_QUERIES["save_state"], project_id, source, json.dumps(dict(state)))
