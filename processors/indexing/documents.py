"""A document on its way through the indexing pipeline, step by step."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from events.models import DocumentChange, content_hash
from events.streams.changes import LoggedChange
from processors.chunking.types import Chunk
from runtime.errors import Poison
from store.types import ChunkWrite, DocumentWrite, Vector

__all__ = ["CutDocument", "EmbeddedDocument", "Failure", "ResolvedDocument"]


@dataclass(frozen=True)
class Failure:
    """A change that cannot be processed, and the reason."""

    change: LoggedChange
    error: Poison


@dataclass(frozen=True)
class ResolvedDocument:
    """A change with its content; ``content`` is empty for a delete."""

    change: LoggedChange
    content: str
    kind: str

    @property
    def data(self) -> DocumentChange:
        """Data of the event."""
        return self.change.event.data

    @cached_property
    def content_hash(self) -> str | None:
        """SHA-256 of the content in hex. It is None for a delete."""
        return None if self.data.change == "delete" else content_hash(self.content)


@dataclass(frozen=True)
class CutDocument:
    """A document in chunks, with the name of the model that embeds them."""

    resolved: ResolvedDocument
    chunks: tuple[Chunk, ...]
    model: str

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Text that is embedded for each chunk: its header, then its content."""
        return tuple(f"{c.header}\n{c.content}" if c.header else c.content for c in self.chunks)

    @cached_property
    def hashes(self) -> tuple[bytes, ...]:
        """SHA-256 (32 bytes) of each text and its agent; equal hashes have equal vectors.

        Vectors are looked up by these hashes. The same private text has different hashes for two
        agents: embedding it for one must not reveal whether the other has it.
        """
        agent = self.resolved.data.agent
        return tuple(_hash(text, agent) for text in self.texts)

    def write(
        self, generation_id: int, vectors: Mapping[bytes, Vector | None] | None = None
    ) -> DocumentWrite:
        """Build the write of this document to a generation. ``vectors`` are by hash of the text.

        A text without a vector gets the cached one when it is written, or waits for one.
        """
        change, data = self.resolved.change, self.resolved.data
        by_hash = vectors or {}
        return DocumentWrite(
            event_id=change.event.id,
            project=data.project,
            agent=data.agent,
            uri=data.uri,
            change=data.change,
            position=change.log_position.position,
            partition=change.log_position.partition,
            published_at=change.event.time,
            old_uri=data.old_uri,
            content_hash=self.resolved.content_hash,
            kind=self.resolved.kind,
            media_type=data.media_type,
            title=data.title,
            commit=data.commit,
            permalink_template=data.permalink_template,
            collections=data.collections,
            metadata=data.metadata,
            chunks=tuple(
                _chunk_write(ordinal, chunk, content_hash, self.model, by_hash.get(content_hash))
                for ordinal, (chunk, content_hash) in enumerate(
                    zip(self.chunks, self.hashes, strict=True)
                )
            ),
            generation_id=generation_id,
            origin=data.origin,
        )


@dataclass(frozen=True)
class EmbeddedDocument:
    """A document ready to be written, with the cost of its embedding."""

    change: LoggedChange
    write: DocumentWrite
    chunks_embedded: int = 0
    tokens_embedded: int = 0
    cost_usd: float = 0.0


def _hash(text: str, agent: str | None) -> bytes:
    shared = hashlib.sha256(text.encode()).digest()
    return hashlib.sha256(agent.encode() + b"\0" + shared).digest() if agent else shared


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
        header=chunk.header,
    )
