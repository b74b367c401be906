"""Step 2: cut each document into chunks that its model can embed whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from processors.indexing.chunking.detect import language_of
from processors.indexing.chunking.sandbox import ChunkingPool
from processors.indexing.chunking.types import Chunk, Source
from processors.indexing.chunking.versions import Chunking
from processors.indexing.documents import CutDocument, Failure, ResolvedDocument
from processors.inference.types import Embedder
from runtime.errors import Poison
from store.generations import Recipe

__all__ = ["Cutter", "Models"]


class Models(Protocol):
    """The models that recipes name."""

    async def embedder(self, model: str) -> Embedder:
        """Return the model of a full name, ready for use."""
        ...

    async def loaded(self, model: str) -> Embedder:
        """Return the model of a full name with its limits loaded; it may not be started yet."""
        ...


class Cutter:
    """Cuts documents in child processes, with the limits of a recipe and of each kind's model."""

    def __init__(self, pool: ChunkingPool, models: Models) -> None:
        self._pool = pool
        self._models = models

    async def cut(
        self, documents: Sequence[ResolvedDocument], recipe: Recipe
    ) -> tuple[list[CutDocument], list[Failure]]:
        """Cut documents into chunks (deletes have none); unparsable ones become failures.

        Raises:
            OperatorError: the recipe names an unknown chunking, or a model without its key.
            Unavailable: the parsers cannot be started.
        """
        chunking = Chunking.parse(recipe.chunking)
        cut: list[CutDocument] = []
        by_limit: defaultdict[int, list[ResolvedDocument]] = defaultdict(list)
        for document in documents:
            if document.data.change == "delete":
                cut.append(_document(document, (), recipe))
                continue
            model = await self._models.loaded(recipe.model_of(document.kind))
            by_limit[chunking.limit(model.limit_tokens)].append(document)
        failures: list[Failure] = []
        for limit_tokens, group in by_limit.items():
            sources = [_source(document) for document in group]
            results = await self._pool.chunk(sources, limit_tokens)
            for document, result in zip(group, results, strict=True):
                if isinstance(result, Poison):
                    failures.append(Failure(document.change, result))
                else:
                    cut.append(_document(document, result, recipe))
        return cut, failures


def _document(document: ResolvedDocument, chunks: Sequence[Chunk], recipe: Recipe) -> CutDocument:
    return CutDocument(document, tuple(chunks), recipe.model_of(document.kind))


def _source(document: ResolvedDocument) -> Source:
    data = document.data
    language = language_of(data.uri, data.media_type, document.content)
    return Source(data.uri, document.content, document.kind, language, data.title, data.media_type)
