"""Whether a question's vectors can be compared with those of a generation."""

from __future__ import annotations

from collections.abc import Mapping

import asyncpg
import numpy as np
import numpy.typing as npt

from runtime.errors import ConfigurationError
from store.named_queries import named
from store.remembering import Recent

__all__ = ["Coverage"]

_QUERIES = named("search")
_FRESH_SECONDS = 15.0

Vectors = Mapping[str, npt.NDArray[np.float32]]
Widths = Mapping[str, int]


class Coverage:
    """Knows which models a generation was embedded by; looks again after 15 seconds."""

    def __init__(self) -> None:
        self._known: Recent[int, Widths] = Recent(_FRESH_SECONDS)

    async def unreached(
        self, connection: asyncpg.Connection, project: str, generation_id: int, vectors: Vectors
    ) -> list[str]:
        """Models of stored vectors that a question with ``vectors`` passes by.

        Raises:
            ConfigurationError: it passes all of them by: a model changed its width.
        """
        stored = await self._widths(connection, generation_id)
        unlike = [
            name
            for name, width in stored.items()
            if name not in vectors or len(vectors[name]) != width
        ]
        if unlike and len(unlike) == len(stored):
            raise ConfigurationError(
                f"project {project} was embedded by {_list(stored)}, the question by "
                f"{_list({name: len(vector) for name, vector in vectors.items()})}: "
                "set HEADRACE_MODEL_DIMENSIONS to the former's width, or embed the documents anew "
                f"(`headrace replay --project {project} --model NAME`)"
            )
        return unlike

    async def _widths(self, connection: asyncpg.Connection, generation_id: int) -> Widths:
        widths = self._known.get(generation_id)
        if widths is None:
            rows = await connection.fetch(_QUERIES["embedded_by"], generation_id)
            widths = {row["name"]: row["dimensions"] for row in rows}
            if widths:
                self._known.put(generation_id, widths)
        return widths


def _list(widths: Widths) -> str:
    return ", ".join(f"{name} ({width} wide)" for name, width in sorted(widths.items()))
