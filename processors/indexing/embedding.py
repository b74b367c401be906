"""Step 3: a vector for each chunk, embedding only text that was never embedded before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from processors.embedding.sharing import Share, divide
from processors.indexing.cutting import Models
from processors.indexing.documents import CutDocument, EmbeddedDocument
from processors.inference.types import Urgency
from store.generations import Generation
from store.types import Vector

__all__ = ["EmbeddingStep", "KnownVectors"]

KnownVectors = Callable[[str, str, Sequence[bytes]], Awaitable[Mapping[bytes, Vector | None]]]
"""What is embedded already, by project, model and content hashes; those without are left out.

None in place of a vector: the store has it at hand, and the write need not carry it.
"""


@dataclass
class Vectors:
    """Vectors by content hash for one project and model; ``shares``: what each event spent."""

    known: dict[bytes, Vector | None] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)


class EmbeddingStep:
    """Looks vectors up by content hash, and asks the model for the rest."""

    def __init__(self, known_vectors: KnownVectors, models: Models) -> None:
        self._known_vectors = known_vectors
        self._models = models

    async def embed(
        self, documents: Sequence[CutDocument], generation: Generation, urgency: Urgency
    ) -> list[EmbeddedDocument]:
        """Documents ready to be written to a generation, in the order given.

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
            _embedded(one, vectors[one.resolved.data.project, one.model], generation.id)
            for one in documents
        ]

    async def _vectors(
        self, project: str, model: str, group: Sequence[CutDocument], urgency: Urgency
    ) -> Vectors:
        hashes = {one for document in group for one in document.hashes}
        found = Vectors(dict(await self._known_vectors(project, model, sorted(hashes))))
        missing = _missing(group, found.known)
        if not missing:
            return found
        texts = [text for text, _ in missing.values()]
        embedder = await self._models.embedder(model)
        result = await embedder.embed(texts, urgency)
        for content_hash, vector in zip(missing, result.vectors, strict=True):
            found.known[content_hash] = vector.astype(np.float16)
        payers = {content_hash: event_id for content_hash, (_, event_id) in missing.items()}
        new = {content_hash: text for content_hash, (text, _) in missing.items()}
        found.shares = divide(new, payers, result.tokens, result.cost_usd)
        return found


def _missing(
    group: Iterable[CutDocument], known: Mapping[bytes, Vector | None]
) -> dict[bytes, tuple[str, str]]:
    """Text and paying event by hash of what has no vector yet, each hash once."""
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
    return EmbeddedDocument(change, write, share.texts, round(share.tokens), share.cost_usd)
