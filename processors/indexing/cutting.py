"""Step 2: cut each document into chunks that its model can embed whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from processors.indexing.chunking.detect import language_of
from processors.indexing.chunking.sandbox import ChunkingPool
from processors.indexing.chunking.types import Chunk, Source
from processors.indexing.documents import CutDocument, Failure, ResolvedDocument
from processors.inference.types import Embedder
from runtime.errors import Poison

__all__ = ["Cutter", "Models"]


class Models(Protocol):
    """Chooses the model by kind of content."""

    def for_kind(self, kind: str) -> Embedder:
        """The model that embeds this kind."""
        ...


class Cutter:
    """Cuts in child processes, with the limits of each kind's model."""

    def __init__(self, pool: ChunkingPool, models: Models) -> None:
        self._pool = pool
        self._models = models

    async def cut(
        self, documents: Sequence[ResolvedDocument]
    ) -> tuple[list[CutDocument], list[Failure]]:
        """Every document in chunks (deletes have none), and those that can't be parsed."""
        cut = [self._document(one, ()) for one in documents if one.data.change == "delete"]
        by_limit: defaultdict[int, list[ResolvedDocument]] = defaultdict(list)
        for document in documents:
            if document.data.change != "delete":
                by_limit[self._models.for_kind(document.kind).limit_tokens].append(document)
        failures: list[Failure] = []
        for limit_tokens, group in by_limit.items():
            results = await self._pool.chunk([_source(one) for one in group], limit_tokens)
            for document, result in zip(group, results, strict=True):
                if isinstance(result, Poison):
                    failures.append(Failure(document.delivery, result))
                else:
                    cut.append(self._document(document, result))
        return cut, failures

    def _document(self, document: ResolvedDocument, chunks: Sequence[Chunk]) -> CutDocument:
        return CutDocument(document, tuple(chunks), self._models.for_kind(document.kind).model)


def _source(document: ResolvedDocument) -> Source:
    data = document.data
    language = language_of(data.uri, data.media_type, document.content)
    return Source(data.uri, document.content, document.kind, language, data.title, data.media_type)
