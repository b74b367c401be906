"""Step 3: a vector for each chunk, embedding only text that was never embedded before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from processors.indexing.chunking.types import Chunk
from processors.indexing.cutting import Models
from processors.indexing.documents import CutDocument, EmbeddedDocument
from processors.inference.types import Urgency
from store.store import Store
from store.types import ChunkWrite, DocumentWrite, Vector

__all__ = ["EmbeddingStep"]


@dataclass
class Bill:
    """What one document's new texts took."""

    chunks: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


@dataclass
class Vectors:
    """Vectors by content hash for one project and model, and who pays for the new ones."""

    known: dict[bytes, Vector] = field(default_factory=dict)
    bills: defaultdict[str, Bill] = field(default_factory=lambda: defaultdict(Bill))


class EmbeddingStep:
    """Looks vectors up by content hash, and asks the model for the rest."""

    def __init__(self, store: Store, models: Models) -> None:
        self._store = store
        self._models = models

    async def embed(
        self, documents: Sequence[CutDocument], urgency: Urgency
    ) -> list[EmbeddedDocument]:
        """Documents ready to be written, in the order given.

        Raises:
            Unavailable: the model or the database is down.
        """
        by_model: defaultdict[tuple[str, str, str], list[CutDocument]] = defaultdict(list)
        for document in documents:
            project = document.resolved.data.project
            by_model[project, document.model, document.resolved.kind].append(document)
        vectors: dict[tuple[str, str, str], Vectors] = {}
        for key, group in by_model.items():
            vectors[key] = await self._vectors(*key, group, urgency)
        return [
            _embedded(one, vectors[one.resolved.data.project, one.model, one.resolved.kind])
            for one in documents
        ]

    async def _vectors(
        self, project: str, model: str, kind: str, group: Sequence[CutDocument], urgency: Urgency
    ) -> Vectors:
        hashes = {one for document in group for one in document.hashes}
        found = Vectors(dict(await self._store.known_vectors(project, model, sorted(hashes))))
        missing = _missing(group, found.known)
        if not missing:
            return found
        texts = [text for text, _ in missing.values()]
        embedder = self._models.for_kind(kind)
        result = await embedder.embed(texts, urgency)
        for content_hash, vector in zip(missing, result.vectors, strict=True):
            found.known[content_hash] = vector.astype(np.float16)
        _bill(found.bills, missing, result.tokens, result.cost_usd)
        return found


def _missing(
    group: Iterable[CutDocument], known: Mapping[bytes, Vector]
) -> dict[bytes, tuple[str, str]]:
    """Text and paying event by hash of what has no vector yet, each hash once."""
    return {
        content_hash: (text, document.resolved.delivery.event.id)
        for document in group
        for content_hash, text in zip(document.hashes, document.texts, strict=True)
        if content_hash not in known
    }


def _bill(
    bills: defaultdict[str, Bill],
    missing: Mapping[bytes, tuple[str, str]],
    tokens: int,
    cost_usd: float,
) -> None:
    """Share tokens and cost out by length of text: models only tell the total."""
    total = sum(len(text) for text, _ in missing.values()) or 1
    for text, event_id in missing.values():
        share = len(text) / total
        bill = bills[event_id]
        bill.chunks += 1
        bill.tokens += round(tokens * share)
        bill.cost_usd += cost_usd * share


def _embedded(document: CutDocument, vectors: Vectors) -> EmbeddedDocument:
    delivery = document.resolved.delivery
    bill = vectors.bills[delivery.event.id]
    return EmbeddedDocument(
        delivery, _write(document, vectors.known), bill.chunks, bill.tokens, bill.cost_usd
    )


def _write(document: CutDocument, known: Mapping[bytes, Vector]) -> DocumentWrite:
    delivery, data = document.resolved.delivery, document.resolved.data
    return DocumentWrite(
        event_id=delivery.event.id,
        project=data.project,
        agent=data.agent,
        uri=data.uri,
        change=data.change,
        position=delivery.number,
        partition=delivery.partition,
        published_at=delivery.event.time,
        old_uri=data.old_uri,
        content_hash=document.resolved.content_hash,
        kind=document.resolved.kind,
        media_type=data.media_type,
        title=data.title,
        commit=data.commit,
        permalink_template=data.permalink_template,
        collections=data.collections,
        metadata=data.metadata,
        chunks=tuple(
            _chunk_write(ordinal, chunk, content_hash, document.model, known[content_hash])
            for ordinal, (chunk, content_hash) in enumerate(
                zip(document.chunks, document.hashes, strict=True)
            )
        ),
    )


def _chunk_write(
    ordinal: int, chunk: Chunk, content_hash: bytes, model: str, vector: Vector
) -> ChunkWrite:
    return ChunkWrite(
        ordinal=ordinal,
        start_line=chunk.start_line,
        end_line=chunk.end_line,
        content=chunk.content,
        content_hash=content_hash,
        tokens=chunk.tokens,
        model=model,
        vector=vector,
        page=chunk.page,
        symbol=chunk.symbol,
        heading_path=chunk.heading_path,
    )
