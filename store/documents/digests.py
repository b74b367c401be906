"""Digests, which show whether a document is stored as its writer intended.

A digest is a SHA-256 over a canonical form of attributes and chunks. It covers no ids, times or
vectors, so that two builds of one log by one recipe have equal digests.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import asyncpg

from events.models import Origin, Scalar
from events.names import LogPosition, Rank, rank_of
from store.postgres.named_queries import named
from store.types import DocumentWrite, locator_text, origin_of

__all__ = [
    "TOMBSTONE",
    "DocumentDigest",
    "IndexDigest",
    "StoredDigest",
    "document_digest",
    "index_digest",
    "stored_documents",
]

TOMBSTONE = sha256(b"deleted").digest()
"""The digest of every deleted document."""

_PREFETCHED_DOCUMENTS = 32
_QUERIES = named("digests")

ChunkForm = tuple[Any, ...]
"""Ordinal, first and last line, page, tokens, symbol, headings, hash in hex, text; then the locator
as JSON if there is one, and of a code example its language and the text around it: so the digests
of texts are those of before there were locators and examples."""


@dataclass(frozen=True, slots=True)
class DocumentDigest:
    """Log position of a document, and the digest of the version that this change produces."""

    agent: str
    uri: str
    position: int
    partition: int
    deleted: bool
    content_hash: str | None
    digest: bytes


@dataclass(frozen=True, slots=True)
class StoredDigest(DocumentDigest):
    """A stored document; ``digest`` is computed from its current rows.

    ``recorded`` is the digest that its writer intended. It is None if the document was written
    before digests existed. ``chunks`` is the number of its rows; ``vectors``: rows that have the
    vector of their model; ``unvectored``: rows that need none; ``refused``: rows without a vector
    because the model rejects their text.
    """

    recorded: bytes | None
    chunks: int
    vectors: int
    unvectored: int
    refused: int = 0
    origin: Origin | None = None

    @property
    def log_position(self) -> LogPosition:
        """Log position of the change that produced the document's current version."""
        return LogPosition(self.position, self.partition)

    @property
    def rank(self) -> Rank:
        """Rank of that change."""
        return rank_of(self.log_position, self.origin)


def document_digest(write: DocumentWrite) -> bytes:
    """SHA-256 (32 bytes) of the version of ``write.uri`` that the change produces."""
    if write.change == "delete":
        return TOMBSTONE
    attributes = (
        write.content_hash,
        write.kind,
        write.media_type,
        write.title,
        write.commit,
        write.permalink_template,
        write.metadata,
    )
    chunks = [
        (
            chunk.ordinal,
            chunk.start_line,
            chunk.end_line,
            chunk.page,
            chunk.tokens,
            chunk.symbol,
            chunk.heading_path,
            chunk.content_hash.hex(),
            chunk.content,
            *_present(locator_text(chunk.locator)),
            *_example(chunk.is_example, chunk.language, chunk.surroundings),
        )
        for chunk in write.chunks
    ]
    return _digest(attributes, write.collections, chunks)


def _digest(
    attributes: Sequence[Any], collections: Iterable[str], chunks: Sequence[ChunkForm]
) -> bytes:
    """Digest of a document; the last of ``attributes`` is the metadata."""
    *texts, metadata = attributes
    canonical = [texts, _canonical(metadata), sorted(set(collections)), chunks]
    text = json.dumps(canonical, ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _canonical(metadata: Mapping[str, Scalar]) -> list[tuple[str, Scalar]]:
    """Sort by key; normalise numbers as the database does: 1.0 is 1, 1e22 a long integer."""
    return [(key, _number(value)) for key, value in sorted(metadata.items())]


def _number(value: Scalar) -> Scalar:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        return float(value) + 0.0
    except OverflowError:
        return value


async def stored_documents(
    connection: asyncpg.Connection, generation_id: int
) -> AsyncIterator[StoredDigest]:
    """Every document of a generation, tombstones included, in order of agent and uri.

    All are read from one snapshot, with few in memory at a time. The transaction must be in a scope
    of the generation that sees every agent's rows.

    Raises:
        asyncpg.PostgresError: the server failed.
    """
    sql = _QUERIES["stored_documents"].format(generation_id=int(generation_id))
    rows = connection.cursor(sql, generation_id, prefetch=_PREFETCHED_DOCUMENTS)
    async for row in rows:
        yield _stored(row)


def _stored(row: Mapping[str, Any]) -> StoredDigest:
    chunks = row["chunks"] or 0
    return StoredDigest(
        agent=row["agent"],
        uri=row["uri"],
        position=row["position"],
        partition=row["partition"],
        deleted=row["deleted"],
        content_hash=row["content_hash"],
        digest=_recomputed(row),
        recorded=row["digest"],
        chunks=chunks,
        vectors=row["vectors"] or 0,
        unvectored=row["unvectored"] or 0,
        refused=row["refused"] or 0,
        origin=origin_of(row),
    )


def _recomputed(row: Mapping[str, Any]) -> bytes:
    """Digest of the stored rows.

    If a deleted document has chunks, or a row belongs to another agent than the document, the
    digest matches neither a tombstone nor an intact document.
    """
    if not (row["deleted"] or row["strayed"]):
        return _living(row)
    whole = row["deleted"] and not (row["chunks"] or row["strayed"])
    return TOMBSTONE if whole else sha256(TOMBSTONE + _living(row)).digest()


def _living(row: Mapping[str, Any]) -> bytes:
    attributes = (
        row["content_hash"],
        row["kind"],
        row["media_type"],
        row["title"],
        row["commit"],
        row["permalink_template"],
        json.loads(row["metadata"]),
    )
    return _digest(attributes, row["collections"] or (), list(_chunks(row)))


def _chunks(row: Mapping[str, Any]) -> Iterable[ChunkForm]:
    if not row["chunks"]:
        return ()
    headings = [json.loads(text) for text in row["heading_paths"]]
    hashes = [content_hash.hex() for content_hash in row["content_hashes"]]
    locators = [
        None if text is None else locator_text(json.loads(text)) for text in row["locators"]
    ]
    forms = zip(
        row["ordinals"],
        row["start_lines"],
        row["end_lines"],
        row["pages"],
        row["tokens"],
        row["symbols"],
        headings,
        hashes,
        row["contents"],
        strict=True,
    )
    examples = map(_example, row["are_examples"], row["languages"], row["surroundings"])
    return [
        (*form, *_present(locator), *example)
        for form, locator, example in zip(forms, locators, examples, strict=True)
    ]


def _present(locator: str | None) -> tuple[str, ...]:
    return () if locator is None else (locator,)


def _example(
    is_example: bool,
    language: str | None,
    surroundings: str | None,
) -> tuple[tuple[str | None, str], ...]:
    return ((language, surroundings or ""),) if is_example else ()


class IndexDigest:
    """SHA-256 over all documents, added in order of agent and uri; equal for equal log and recipe.

    It covers their log positions too. Contents are not needed: a document's digest and its
    ``content_hash`` represent them.
    """

    def __init__(self) -> None:
        self._total = sha256()

    def add(self, document: DocumentDigest) -> None:
        """Add the next document."""
        location = (
            document.agent,
            document.uri,
            document.partition,
            document.position,
            document.deleted,
            document.content_hash,
        )
        text = json.dumps(location, ensure_ascii=False, separators=(",", ":"))
        self._total.update(text.encode("utf-8", "surrogatepass") + document.digest)

    def digest(self) -> bytes:
        """32 bytes."""
        return self._total.digest()


def index_digest(documents: Iterable[DocumentDigest]) -> bytes:
    """Digest of documents in any order, see ``IndexDigest``."""
    total = IndexDigest()
    for document in sorted(documents, key=lambda document: (document.agent, document.uri)):
        total.add(document)
    return total.digest()
