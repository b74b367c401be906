"""Step 3: a vector for each chunk, embedding only text that was never embedded before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from processors.embedders.embedder import Urgency
from processors.indexing.preparation import CutDocument, EmbeddedDocument, Models
from runtime import traces
from store.documents.ledger import Share, divide
from store.generations.catalog import Generation
from store.types import Vector

__all__ = ["EmbeddingStep", "KnownVectors"]

KnownVectors = Callable[[str, str, Sequence[bytes]], Awaitable[Mapping[bytes, Vector | None]]]
"""Look up the vectors of a project and model by content hash; hashes without one are left out.

None in place of a vector means that the store has it, so the write need not contain it.
"""


@dataclass
class Vectors:
    """Vectors by content hash for one project and model; ``shares`` is the cost of each event."""

    known: dict[bytes, Vector | None] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)


class EmbeddingStep:
    """Looks vectors up by content hash, and embeds the rest."""

    def __init__(self, known_vectors: KnownVectors, models: Models) -> None:
        self._known_vectors = known_vectors
        self._models = models

    async def embed(
        self, documents: Sequence[CutDocument], generation: Generation, urgency: Urgency
    ) -> list[EmbeddedDocument]:
        """Return documents ready to be written to a generation, in the order given.

        Raises:
            Unavailable: the model or the database is down.
        """
        by_model: defaultdict[tuple[str, str], list[CutDocument]] = defaultdict(list)
        for document in documents:
            by_model[document.resolved.data.project, document.model].append(document)
        vectors = {
            key: await self._vectors(*key, group, urgency) for key, group in by_model.items()
        }
        return [
            _embedded(
                document, vectors[document.resolved.data.project, document.model], generation.id
            )
            for document in documents
        ]

    async def _vectors(
        self, project: str, model: str, group: Sequence[CutDocument], urgency: Urgency
    ) -> Vectors:
        hashes = {content_hash for document in group for content_hash in document.hashes}
        vectors = Vectors(dict(await self._known_vectors(project, model, sorted(hashes))))
        missing = _missing(group, vectors.known)
        if not missing:
            return vectors
        texts = [text for text, _ in missing.values()]
        embedder = await self._models.embedder(model)
        with traces.embeddings(model, len(texts)) as span:
            result = await embedder.embed(texts, urgency)
            span.set({"gen_ai.usage.input_tokens": result.tokens})
        for content_hash, vector in zip(missing, result.vectors, strict=True):
            vectors.known[content_hash] = vector.astype(np.float16)
        payers = {content_hash: event_id for content_hash, (_, event_id) in missing.items()}
        new = {content_hash: text for content_hash, (text, _) in missing.items()}
        vectors.shares = divide(new, payers, result.tokens, result.cost_usd)
        return vectors


def _missing(
    group: Iterable[CutDocument], known: Mapping[bytes, Vector | None]
) -> dict[bytes, tuple[str, str]]:
    """Return text and paying event by hash, for texts without a vector, each hash once."""
    return {
        content_hash: (text, document.resolved.change.event.id)
        for document in group
        for content_hash, text in zip(document.hashes, document.texts, strict=True)
        if content_hash not in known
    }


def _embedded(document: CutDocument, vectors: Vectors, generation_id: int) -> EmbeddedDocument:
    change = document.resolved.change
    share = vectors.shares.get(change.event.id, Share())
    write = document.write(generation_id, vectors.known)
    tokens, cost_usd = document.sentence_tokens, document.sentence_cost_usd
    return EmbeddedDocument(
        change, write, share.texts, round(share.tokens + tokens), share.cost_usd + cost_usd
    )
