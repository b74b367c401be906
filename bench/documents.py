"""Documents for measurements.

``document_writes`` are real documents with chunks and vectors, to be stored without a model.
``notes`` and ``changes_of_all_kinds`` are small documents as people and agents write them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from itertools import islice

from bench.corpus import python_files, topical_vector
from events.models import DocumentChange, DocumentChanged, content_hash
from events.names import Lane, LogPosition
from processors.chunking import cut
from processors.chunking.types import Chunk, CountTokens, Source
from processors.wiring.services import Services
from runtime.settings import LOCAL_MODEL
from store.types import ChunkWrite, DocumentWrite

__all__ = [
    "LIMIT_TOKENS",
    "changes_of_all_kinds",
    "document_writes",
    "fill",
    "new_note",
    "notes",
]

LIMIT_TOKENS = 254
_DOCUMENTS_PER_WRITE = 32
_MODULE_LINES = 120


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


def notes(project: str, count: int, seed: int = 5) -> Iterator[DocumentChanged]:
    """Yield ``count`` different new notes of one chunk each: a heading and about 60 words."""
    rng = random.Random(seed)
    for number in range(count):
        yield new_note(project, _uri(number), rng)


def changes_of_all_kinds(project: str, count: int, seed: int = 5) -> Iterator[DocumentChanged]:
    """Yield per ten changes seven new notes, one edit, one delete, and one module of code."""
    rng = random.Random(seed)
    files = python_files()
    for number in range(count):
        if number % 10 == 7:
            yield new_note(project, _uri(rng.randrange(number)), rng)
        elif number % 10 == 8:
            uri = _uri(rng.randrange(number))
            yield DocumentChanged(data=DocumentChange(project=project, uri=uri, change="delete"))
        elif number % 10 == 9:
            uri, content = rng.choice(files)
            lines = content.splitlines()[:_MODULE_LINES]
            yield _upsert(project, f"modules/{number}/{uri}", "\n".join(lines) or "pass")
        else:
            yield new_note(project, _uri(number), rng)


def new_note(project: str, uri: str, rng: random.Random) -> DocumentChanged:
    """Write a note, or its new version if the uri exists."""
    title, *sentences = rng.sample(_sentences(), rng.randint(5, 8))
    return _upsert(project, uri, f"# {title}\n\n" + "\n".join(sentences) + "\n")


def _upsert(project: str, uri: str, content: str) -> DocumentChanged:
    return DocumentChanged(data=DocumentChange(project=project, uri=uri, content=content))


def _uri(number: int) -> str:
    return f"notes/{number // 1000:03}/note-{number:06}.md"


@lru_cache(1)
def _sentences() -> list[str]:
    """Return comments and docstrings of 6 to 20 words."""
    lines = (
        line.strip(" #\"'.\t")
        for _, text in python_files()[:600]
        for line in text.splitlines()
        if line.lstrip().startswith(("#", '"""'))
    )
    return sorted({line for line in lines if 6 <= len(line.split()) <= 20})
