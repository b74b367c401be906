"""Real documents with chunks and vectors, ready to be stored without a model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice

from bench.corpus import python_files, topical_vector
from events.models import content_hash
from events.names import Lane, LogPosition
from processors.chunking import cut
from processors.chunking.types import Chunk, CountTokens, Source
from processors.wiring.services import Services
from runtime.settings import LOCAL_MODEL
from store.types import ChunkWrite, DocumentWrite

__all__ = ["LIMIT_TOKENS", "document_writes", "fill"]

LIMIT_TOKENS = 254
_DOCUMENTS_PER_WRITE = 32


async def fill(services: Services, project: str, chunks: int) -> int:
    """Store at least so many chunks of real text with topical vectors; return their number."""
    documents = document_writes(project, services.count_tokens)
    written = 0
    while written < chunks and (group := list(islice(documents, _DOCUMENTS_PER_WRITE))):
        await services.store.apply([write for _, write in group])
        written += sum(len(write.chunks) for _, write in group)
    return written


def document_writes(project: str, count: CountTokens) -> Iterator[tuple[str, DocumentWrite]]:
    """Yield text and write of the standard library's files, repeatedly under other names.

    Vectors are topical: 50,000 embeddings would take minutes and change no figure.
    """
    files = python_files()
    for number in itertools.count(1):
        copy, index = divmod(number - 1, len(files))
        uri, content = files[index]
        yield content, _document(project, number, f"copy-{copy}/{uri}", content, count)


def _document(
    project: str, number: int, uri: str, content: str, count: CountTokens
) -> DocumentWrite:
    chunks = cut(Source(uri, content, "code", "python"), LIMIT_TOKENS, count).chunks
    return DocumentWrite(
        event_id=f"bench-{number}",
        project=project,
        agent=None,
        uri=uri,
        change="upsert",
        position=LogPosition.of_entry(Lane.BULK, 0, f"{number}-0").position,
        partition=0,
        published_at=datetime.now(UTC),
        content_hash=content_hash(content),
        kind="code",
        chunks=tuple(_chunk(ordinal, piece) for ordinal, piece in enumerate(chunks)),
    )


def _chunk(ordinal: int, chunk: Chunk) -> ChunkWrite:
    text = f"{chunk.header}\n{chunk.content}" if chunk.header else chunk.content
    return ChunkWrite(
        ordinal=ordinal,
        start_line=chunk.start_line,
        end_line=chunk.end_line,
        content=chunk.content,
        content_hash=sha256(text.encode()).digest(),
        tokens=chunk.tokens,
        model=LOCAL_MODEL,
        vector=topical_vector(text),
        symbol=chunk.symbol,
        heading_path=chunk.heading_path,
    )
