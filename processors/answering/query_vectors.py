"""Query vectors, one per model in use, with a cache, because agents repeat their queries."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import numpy as np
import numpy.typing as npt

from processors.embedders.embedder import Embedder, Urgency
from runtime import traces
from runtime.errors import HeadraceError, Unavailable

__all__ = ["Models", "QueryVectors"]

QueryVector = npt.NDArray[np.float32]


class Models(Protocol):
    """The models that recipes name."""

    async def loaded(self, model: str) -> Embedder:
        """Return the model of a full name; it may not be started yet."""
        ...


class QueryVectors:
    """Embeds a query by each model, with a least-recently-used cache of ``size`` vectors."""

    def __init__(self, models: Models, size: int = 4096) -> None:
        self._models = models
        self._size = size
        self._cache: OrderedDict[tuple[str, str], QueryVector] = OrderedDict()

    async def embed(
        self, text: str, models: Sequence[str], within: timedelta
    ) -> tuple[dict[str, QueryVector], list[HeadraceError]]:
        """Return unit vectors of shape (dimensions,) by model name, and errors of other models.

        A model that takes longer than ``within``, its start included, counts as unavailable.
        """
        results = await asyncio.gather(*(self._embed_with(model, text, within) for model in models))
        vectors = {
            model: result
            for model, result in zip(models, results, strict=True)
            if not isinstance(result, HeadraceError)
        }
        return vectors, [result for result in results if isinstance(result, HeadraceError)]

    async def _embed_with(
        self, model: str, text: str, within: timedelta
    ) -> QueryVector | HeadraceError:
        key = model, text
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key]
        try:
            async with asyncio.timeout(within.total_seconds()):
                embedder = await self._models.loaded(model)
                with traces.embeddings(model, 1):
                    embeddings = await embedder.embed([text], Urgency.QUERY)
                vector: QueryVector = embeddings.vectors[0]
        except TimeoutError:
            return Unavailable(
                f"{model} took too long to embed the question: over {within.total_seconds():.3g} s"
            )
        except HeadraceError as error:
            return error
        self._cache[key] = vector
        if len(self._cache) > self._size:
            self._cache.popitem(last=False)
        return vector
