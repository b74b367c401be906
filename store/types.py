"""Arguments and results of the store's operations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from events.models import Filters, Origin, Scalar
from events.names import LogPosition, Rank, rank_of
from runtime.errors import OutdatedChange, PreconditionFailed, SourceConflict

__all__ = [
    "Applied",
    "Candidates",
    "ChunkPart",
    "ChunkPlace",
    "ChunkRow",
    "ChunkWrite",
    "DocumentWrite",
    "NamedChunk",
    "SearchRequest",
    "Subject",
    "Vector",
    "columns_of",
    "locator_text",
    "origin_of",
]

Vector = npt.NDArray[np.float16]


class ChunkWrite(NamedTuple):
    """One chunk to be stored.

    ``content_hash`` (32 bytes) is the SHA-256 of the embedded text (header and text) and, for a
    private document, of its agent: under one model, equal hashes have equal vectors. ``content`` is
    the source text itself. Without a ``vector``, the chunk gets the cached vector of its text, or
    stays pending until it has one. With an empty ``model``, it gets no vector. ``locator`` is its
    place in a document that is not text, as ``content.places`` makes it. ``is_example``: it is a
    code example, which only a search for examples returns; ``language`` is that of its code, and
    ``surroundings`` is text around it, by which it is found too.
    """

    ordinal: int
    start_line: int
    end_line: int
    content: str
    content_hash: bytes
    tokens: int
    model: str
    vector: Vector | None
    page: int | None = None
    symbol: str | None = None
    heading_path: tuple[str, ...] = ()
    header: str = ""
    locator: Mapping[str, Any] | None = None
    is_example: bool = False
    language: str | None = None
    surroundings: str = ""


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """One change, ready to be applied. ``chunks`` is empty for a delete.

    ``generation_id``: generation that the chunks were made for, or 0 for the live one.
    ``claimant``: SHA-256 (hex) of the event, if its stream entry has another position than this.
    ``batch``: the import that the change belongs to. ``tokens_embedded`` and ``cost_usd`` were
    spent on the given vectors.
    ``expected_hash``: the change is applied only to a document with this content hash.
    ``warnings``: parts of the document that could not be read.
    """

    event_id: str
    project: str
    agent: str | None
    uri: str
    change: Literal["upsert", "delete", "rename"]
    position: int
    partition: int
    published_at: datetime
    old_uri: str | None = None
    content_hash: str | None = None
    kind: str = "text"
    media_type: str | None = None
    title: str | None = None
    commit: str | None = None
    permalink_template: str | None = None
    collections: tuple[str, ...] = ()
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    chunks: tuple[ChunkWrite, ...] = ()
    generation_id: int = 0
    claimant: str | None = None
    origin: Origin | None = None
    batch: str | None = None
    tokens_embedded: int = 0
    cost_usd: float = 0.0
    expected_hash: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def code_examples(self) -> int:
        """Number of the chunks that are code examples."""
        return sum(chunk.is_example for chunk in self.chunks)

    @property
    def log_position(self) -> LogPosition:
        """Log position of the change."""
        return LogPosition(self.position, self.partition)

    @property
    def rank(self) -> Rank:
        """Rank of the change; of two changes of one document, the higher rank wins."""
        return rank_of(self.log_position, self.origin)


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of one change.

    Superseded: something newer is stored. Duplicate: a change was applied before at this position.
    ``conflict``: reason why a rejected change had no effect. The ledger has a PreconditionFailed
    already, and no other reason. ``chunks_pending``: number of the document's chunks that have no
    vector yet. ``created``: the document did not exist before, or was deleted.
    """

    event_id: str
    outcome: Literal["indexed", "superseded", "duplicate", "rejected"]
    chunks_kept: int = 0
    chunks_added: int = 0
    chunks_removed: int = 0
    chunks_pending: int = 0
    conflict: SourceConflict | PreconditionFailed | OutdatedChange | None = None
    created: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A chunk that others are to be like: its unit vectors by model name, and its rarest terms.

    ``document_id`` is present if the other chunks of its document are to be left out.
    """

    chunk_id: int
    document_id: int | None
    vectors: Mapping[str, npt.NDArray[np.float32]]
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search. ``vectors``: the query's unit vector by model name; empty: no vector retriever.

    ``text`` None: no keyword retriever. ``candidates``: number of chunks that each retriever must
    return at most. ``compared``: the similarity of every candidate is needed, also of those that
    only the keyword retriever returns. ``defined``: names whose definitions are needed too.
    ``described``: number of the best chunks of each retriever whose places need a ``beginning``.

    ``subject``: the chunk that others are to be like, which is left out. Its terms take the place
    of ``text``. ``narrowed``: ids of the chunks that have all words of the phrases and symbols in
    the filters, or None if they are unknown or many. ``defining``: ids of chunks that define one of
    the symbols in the filters, although their own symbols do not say so.
    """

    project: str
    agent: str | None
    text: str | None
    vectors: Mapping[str, npt.NDArray[np.float32]]
    filters: Filters
    candidates: int
    compared: bool = False
    defined: tuple[str, ...] = ()
    subject: Subject | None = None
    narrowed: Sequence[int] | None = None
    defining: Sequence[int] = ()
    described: int = 0

    @property
    def has_words(self) -> bool:
        """Return whether the keyword retriever is asked for anything."""
        return self.text is not None or bool(self.defined)


@dataclass(frozen=True, slots=True)
class NamedChunk:
    """A candidate of a search with ``defined``.

    ``content`` is None unless the chunk defines one of the names, in this or another case.
    """

    uri: str
    kind: str
    symbol: str | None
    start_line: int
    content: str | None


class ChunkPlace(NamedTuple):
    """Place of a chunk in its document; ``ordinal`` counts the document's chunks from 0.

    Lines count from 1, both ends included. ``is_code``: the document is code, so that ``symbol`` is
    the qualified name of a unit, or several names with commas between. ``is_bare``: the chunk has
    no vector yet. ``beginning`` is that of the text, up to 1,000 characters, of a chunk of one unit
    of code; it is empty for others, and if the search did not need it. ``in_code``: the document is
    code, also where the chunk has no symbol.
    """

    document_id: int
    ordinal: int
    start_line: int
    end_line: int
    tokens: int
    page: int | None = None
    symbol: str | None = None
    heading_path: Sequence[str] = ()
    is_code: bool = False
    is_example: bool = False
    is_bare: bool = False
    uri: str = ""
    beginning: str = ""
    in_code: bool = False


@dataclass(frozen=True, slots=True)
class Candidates:
    """Chunk ids with raw scores, best first, for each retriever; visible to the agent and filtered.

    ``vector``: cosine similarity by model; ``keyword``: BM25. ``degraded``: retrievers that failed
    or are incomplete. ``corrections``: query term → indexed term used instead.
    ``documents``: chunk id → document id; an absent chunk counts as a document of its own. It is
    empty if only one retriever returned chunks. ``places``: chunk id → its place, as far as known.
    ``pending``: ids of candidates that have no vector yet. ``coverage``: share (0 to 1) of the
    chunks that have a vector, among those that pass the filters. ``compared``: cosine similarity of
    the candidates that only the keyword retriever returned, if requested, and of the definitions
    that no retriever returned; a chunk without a vector is absent. ``searched_chunks``: number of
    chunks that pass the filters, or None if unknown.
    ``term_weights``: factor in BM25 of each term of the query, or its correction, that occurs.
    ``named``: for a search with ``defined``, all candidates and the other definitions.
    ``is_live``: the generation was the live one when it was searched.
    """

    vector: Mapping[str, list[tuple[int, float]]]
    keyword: list[tuple[int, float]]
    degraded: tuple[str, ...] = ()
    corrections: Mapping[str, str] = field(default_factory=dict)
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    documents: Mapping[int, int] = field(default_factory=dict)
    pending: frozenset[int] = frozenset()
    coverage: float = 1.0
    compared: Mapping[int, float] = field(default_factory=dict)
    searched_chunks: int | None = None
    term_weights: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[int, NamedChunk] = field(default_factory=dict)
    places: Mapping[int, ChunkPlace] = field(default_factory=dict)
    is_live: bool = True


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """Text of a chunk with its place. ``locator``: see ``ChunkWrite``."""

    chunk_id: int
    document_id: int
    ordinal: int
    start_line: int
    end_line: int
    tokens: int
    symbol: str | None
    heading_path: tuple[str, ...]
    content: str
    locator: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A stored chunk with the attributes of its document that a citation needs.

    ``kind`` is that of the document, or ``code_example``. Only an example may have a ``language``
    and ``surroundings``.
    """

    chunk_id: int
    document_id: int
    uri: str
    kind: str
    title: str | None
    content: str
    start_line: int
    end_line: int
    page: int | None
    locator: Mapping[str, Any] | None
    symbol: str | None
    heading_path: tuple[str, ...]
    commit: str | None
    permalink_template: str | None
    metadata: Mapping[str, Scalar]
    tokens: int
    language: str | None = None
    surroundings: str = ""
    ordinal: int = 0


def locator_text(locator: Mapping[str, Any] | None) -> str | None:
    """JSON of a chunk's locator, equal for equal locators."""
    return None if locator is None else json.dumps(locator, sort_keys=True)


def origin_of(row: Mapping[str, Any]) -> Origin | None:
    """Origin in ``source_id`` and ``source_revision`` of a row, or None without a source."""
    if row["source_id"] is None:
        return None
    return Origin(source=row["source_id"], revision=row["source_revision"])


def columns_of(origin: Origin | None) -> tuple[str | None, int | None]:
    """Inverse of ``origin_of``."""
    return (None, None) if origin is None else (origin.source, origin.revision)
