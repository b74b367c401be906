"""Query vectors, one per model in use, with a cache, because agents repeat their queries."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Protocol

import numpy as np
import numpy.typing as npt
import structlog

from events.models import Query
from processors.answering.query_text import searchable
from processors.embedders.embedder import Embedder, Urgency
from runtime import traces
from runtime.errors import HeadraceError, Poison, Unavailable, UsageError
from runtime.traces import staged
from store.types import Subject

__all__ = ["Models", "QueryVectors", "Vectors", "stored_vectors"]

log = structlog.get_logger(__name__)

QueryVector = npt.NDArray[np.float32]
Vectors = Mapping[str, QueryVector]
"""Vectors by the name of their model."""


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

    @staged("embed")
    async def of_query(
        self, query: Query, models: Sequence[str], within: timedelta
    ) -> tuple[Vectors, tuple[str, ...]]:
        """Return query vectors by model; a hybrid query continues without the models that fail.

        With a least similarity, it needs at least one. If a model fails, ``vector`` is returned as
        the name of the retriever that is degraded.
        """
        if query.mode == "keyword":
            return {}, ()
        vectors, errors = await self.embed(searchable(query.text), models, within)
        for error in errors:
            log.warning("query.not_embedded", project=query.project, error=str(error))
        needs_vectors = query.mode == "vector" or query.min_similarity is not None
        if errors and not vectors and (needs_vectors or not _can_degrade(errors)):
            raise errors[0]
        return vectors, ("vector",) if errors else ()

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


def stored_vectors(query: Query, subject: Subject) -> tuple[Vectors, tuple[str, ...]]:
    """Return vectors of a chunk in place of those of a text; a hybrid query can do without them.

    Raises:
        UsageError: the query needs vectors, and the chunk has none.
    """
    if query.mode == "keyword":
        return {}, ()
    if not subject.vectors and (query.mode == "vector" or query.min_similarity is not None):
        raise UsageError(
            "the chunk has no vector", "ask again when it is embedded, or in the mode keyword"
        )
    return subject.vectors, () if subject.vectors else ("vector",)


def _can_degrade(errors: Sequence[HeadraceError]) -> bool:
    """Return whether keyword search may answer alone; a refused question is the asker's to fix."""
    return not any(isinstance(error, Poison) for error in errors)
