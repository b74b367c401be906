"""Step 3: a vector for each chunk, embedding only text that was never embedded before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from processors.indexing.chunking.types import Chunk
from processors.indexing.cutting import Models
from processors.indexing.documents import CutDocument, EmbeddedDocument
from processors.inference.types import Urgency
from store.generations import Generation
from store.types import ChunkWrite, DocumentWrite, Vector

__all__ = ["EmbeddingStep", "KnownVectors"]

KnownVectors = Callable[[str, str, Sequence[bytes]], Awaitable[Mapping[bytes, Vector | None]]]
"""What is embedded already, by project, model and content hashes; those without are left out.

None in place of a vector: the store has it at hand, and the write need not carry it.
"""


@dataclass
class Bill:
    """What one document's new texts took."""

    chunks: int = 0
    tokens: int = 0
    cost_usd: float = 0.0


@dataclass
class Vectors:
    """Vectors by content hash for one project and model, and who pays for the new ones."""

    known: dict[bytes, Vector | None] = field(default_factory=dict)
    bills: defaultdict[str, Bill] = field(default_factory=lambda: defaultdict(Bill))


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
        _bill(found.bills, missing, result.tokens, result.cost_usd)
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


def _embedded(document: CutDocument, vectors: Vectors, generation_id: int) -> EmbeddedDocument:
    change = document.resolved.change
    bill = vectors.bills[change.event.id]
    write = _write(document, vectors.known, generation_id)
    return EmbeddedDocument(change, write, bill.chunks, bill.tokens, bill.cost_usd)


def _write(
    document: CutDocument, known: Mapping[bytes, Vector | None], generation_id: int
) -> DocumentWrite:
    change, data = document.resolved.change, document.resolved.data
    return DocumentWrite(
        event_id=change.event.id,
        project=data.project,
        agent=data.agent,
        uri=data.uri,
        change=data.change,
        position=change.position,
        partition=change.partition,
        published_at=change.event.time,
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
        generation_id=generation_id,
    )


def _chunk_write(
    ordinal: int, chunk: Chunk, content_hash: bytes, model: str, vector: Vector | None
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
