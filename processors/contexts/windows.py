"""Windows of a document: runs of chunks that a language model reads in one request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from processors.indexing.preparation import text_hash
from store.documents.contexts import Context, StoredChunk, StoredDocument

__all__ = ["context_of", "embedded_text", "key_of", "windows_of"]

MOST_CHUNKS = 24
"""Chunks of a window: an answer with more sentences is too long, or too late, for some models."""


def windows_of(chunks: Sequence[StoredChunk], most_tokens: int) -> list[tuple[StoredChunk, ...]]:
    """Divide the chunks of a document into windows, in order.

    A window has at most ``most_tokens`` tokens and 24 chunks. A document that fits is one window.
    Otherwise a window has whole sections, each of which begins with another outermost heading; a
    section that does not fit is divided between its chunks.
    """
    windows: list[tuple[StoredChunk, ...]] = []
    window: list[StoredChunk] = []
    for part in _parts(chunks, most_tokens):
        if window and not _fits([*window, *part], most_tokens):
            windows.append(tuple(window))
            window = []
        window += part
    return [*windows, tuple(window)] if window else windows


def _parts(chunks: Sequence[StoredChunk], most_tokens: int) -> Iterator[Sequence[StoredChunk]]:
    """Parts that stay together: the document, or its sections, or the chunks of a long section."""
    if _fits(chunks, most_tokens):
        yield chunks
        return
    for _, section in groupby(chunks, key=lambda chunk: chunk.heading_path[:1]):
        part = list(section)
        if _fits(part, most_tokens):
            yield part
        else:
            yield from ([chunk] for chunk in part)


def _fits(chunks: Sequence[StoredChunk], most_tokens: int) -> bool:
    return len(chunks) <= MOST_CHUNKS and sum(chunk.tokens for chunk in chunks) <= most_tokens


def key_of(document: StoredDocument, chunk: StoredChunk) -> bytes:
    """Key of a chunk's context in the cache (32 bytes): document, title, headings and text.

    The sentence may repeat what stands elsewhere in the document, so no other document shares it.
    The rest of the document is not part of it, so that an edit asks for the changed chunks only.
    """
    own = [document.agent, document.uri]
    parts = [*own, document.title or "", chunk.heading_path, chunk.content]
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def embedded_text(chunk: StoredChunk, sentence: str) -> str:
    """Text that is embedded for a chunk with a context: header, context, content."""
    return "\n".join(filter(None, (chunk.header, sentence, chunk.content)))


def context_of(document: StoredDocument, chunk: StoredChunk, sentence: str) -> Context:
    """Context of a chunk, ready to be written."""
    content_hash = text_hash(embedded_text(chunk, sentence), document.agent or None)
    return Context(sentence, key_of(document, chunk), content_hash)
