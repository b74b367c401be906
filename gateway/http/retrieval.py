"""The retrieval API: four routes under ``/rag`` for the project of the API key."""

from __future__ import annotations

import hashlib
import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from events.fields import DOCUMENT_KINDS, OneProblem, Text, storable
from events.models import (
    DocumentIndexed,
    DocumentKind,
    DocumentRejected,
    Filters,
    Kind,
    Scalar,
    SearchResult,
)
from gateway.auth.callers import Caller, Right
from gateway.http.problems import RejectedChange
from gateway.http.services import CallerOf, KeyedRoute, ServicesOf
from gateway.knowledge import Question, event_of, valid_change
from runtime.errors import DeadlineExceeded, LimitExceeded, UnsupportedContent, UsageError
from store.views.listing import DocumentRow

__all__ = ["router", "source_id_of"]

router = APIRouter(prefix="/rag", tags=["retrieval"], route_class=KeyedRoute)

_WAIT = timedelta(seconds=30)
_SOURCE_ID = r"^[0-9a-f]{32}$"
_ID_CHARACTERS = 32

SourceId = Annotated[str, InPath(pattern=_SOURCE_ID)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class IndexRequest(_Body):
    """A document to index. Without content, it is read from the directory of the gateway."""

    source_type: DocumentKind
    source_path: Annotated[str, Field(min_length=1, max_length=2048)]
    content: str | None = None
    metadata: dict[str, Scalar] = {}


class IndexResponse(BaseModel):
    """Result of indexing. ``unchanged``: the same content was indexed before."""

    source_id: str
    chunks_created: int
    tokens_processed: int
    duration_ms: float
    status: Literal["indexed", "updated", "unchanged"]


class RetrieveFilters(_Body):
    """Conditions on the sources of the results; all must hold."""

    source_type: (
        Annotated[
            DocumentKind | list[DocumentKind],
            OneProblem(f"must be one of {', '.join(DOCUMENT_KINDS)}, or a list of these"),
        ]
        | None
    ) = None
    source_path: Text | None = None
    metadata: dict[str, Scalar] = {}


class RetrieveRequest(_Body):
    """A query. Results below ``similarity_threshold`` (cosine) are left out."""

    query: Annotated[
        str, Field(min_length=1, max_length=2000, pattern=r"\S"), AfterValidator(storable)
    ]
    top_k: Annotated[int, Field(ge=1, le=50)] = 5
    similarity_threshold: Annotated[float, Field(ge=0, le=1)] = 0.0
    filters: RetrieveFilters = RetrieveFilters()


class RetrievedChunk(BaseModel):
    """One chunk that was found.

    ``content`` of a part of a table or of a fence includes the lines that make it readable, such as
    the head of the table.
    """

    chunk_id: int
    source_id: str
    source_path: str
    source_type: Kind
    content: str
    relevance_score: float
    metadata: dict[str, Any]


class RetrieveResponse(BaseModel):
    """Chunks by relevance, and what the search took.

    ``total_chunks_searched`` is null if the chunks could not be counted.
    """

    results: list[RetrievedChunk]
    query_embedding_time_ms: float
    search_time_ms: float
    total_chunks_searched: int | None


class SourceBody(BaseModel):
    """One indexed source."""

    source_id: str
    source_type: str
    source_path: str
    chunk_count: int
    content_hash: str | None
    indexed_at: datetime
    metadata: dict[str, Any]


class SourcesResponse(BaseModel):
    """One page of sources. ``next`` is the value of ``after`` for the next page."""

    sources: list[SourceBody]
    total_sources: int
    total_chunks: int
    next: str | None = None


class DeleteResponse(BaseModel):
    """Result of a deletion."""

    source_id: str
    chunks_deleted: int
    status: Literal["deleted"] = "deleted"


def source_id_of(source_type: str, source_path: str) -> str:
    """Return the id of a source: 32 hex digits of the SHA-256 over type and path."""
    digest = hashlib.sha256(f"{source_type}\n{source_path}".encode())
    return digest.hexdigest()[:_ID_CHARACTERS]


@router.post("/index", status_code=201)
async def index(source: IndexRequest, caller: CallerOf, services: ServicesOf) -> IndexResponse:
    """Index a document, and wait until it is searchable."""
    began = time.perf_counter()
    project = _project(caller)
    content = source.content
    if content is None:
        settings = services.settings
        content = _read(settings.gateway.files, source.source_path, settings.max_document_bytes)
    change = valid_change(
        project=project,
        uri=source.source_path,
        content=content,
        kind=source.source_type,
        metadata=source.metadata,
    )
    published = await services.knowledge.publish(caller, event_of(change, None), wait=_WAIT)
    indexed = _indexed(published.outcome)
    status: Literal["indexed", "updated", "unchanged"] = "updated"
    if indexed.data.created:
        status = "indexed"
    elif not indexed.data.chunks_added and not indexed.data.chunks_removed:
        status = "unchanged"
    return IndexResponse(
        source_id=source_id_of(source.source_type, source.source_path),
        chunks_created=indexed.data.chunks_added,
        tokens_processed=indexed.data.tokens_embedded,
        duration_ms=round((time.perf_counter() - began) * 1000, 3),
        status=status,
    )


@router.post("/retrieve")
async def retrieve(
    wanted: RetrieveRequest, caller: CallerOf, services: ServicesOf
) -> RetrieveResponse:
    """Find the chunks that are nearest to a query, by meaning and by words."""
    kinds = wanted.filters.source_type
    question = Question(
        text=wanted.query,
        limit=wanted.top_k,
        min_similarity=wanted.similarity_threshold or None,
        filters=Filters(
            kinds=tuple(kinds) if isinstance(kinds, list) else (kinds,) if kinds else (),
            uri_prefix=wanted.filters.source_path,
            metadata=wanted.filters.metadata,
        ),
    )
    answer = await services.knowledge.ask(caller, _project(caller), question)
    return RetrieveResponse(
        results=[_retrieved(result) for result in answer.results],
        query_embedding_time_ms=answer.timings_ms.get("embed", 0.0),
        search_time_ms=answer.timings_ms.get("search", 0.0),
        total_chunks_searched=answer.searched_chunks,
    )


@router.get("/sources")
async def sources(
    caller: CallerOf,
    services: ServicesOf,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> SourcesResponse:
    """List the indexed sources by path."""
    project = _project(caller)
    listing = services.knowledge.reading(caller, project)
    rows = await listing.documents(project, caller.agent, after=after, limit=limit + 1)
    whole = await listing.project(project, caller.agent)
    page = rows[:limit]
    return SourcesResponse(
        sources=[_source(row) for row in page],
        total_sources=whole.documents,
        total_chunks=whole.chunks,
        next=page[-1].cursor if len(rows) > limit else None,
    )


@router.delete("/sources/{source_id}")
async def delete_source(
    source_id: SourceId, caller: CallerOf, services: ServicesOf
) -> DeleteResponse:
    """Delete a source with its chunks, and wait until it is no longer found."""
    caller.require(Right.PUBLISH)
    project = _project(caller)
    listing = services.knowledge.reading(caller, project)
    document = await listing.document_with_source_id(project, caller.agent, source_id)
    change = valid_change(change="delete", project=project, uri=document.uri, agent=document.agent)
    published = await services.knowledge.publish(caller, event_of(change, None), wait=_WAIT)
    indexed = _indexed(published.outcome)
    return DeleteResponse(source_id=source_id, chunks_deleted=indexed.data.chunks_removed)


def _project(caller: Caller) -> str:
    if caller.project is None:
        raise UsageError(
            "these routes work on the project of the API key, and this key has none",
            "use a key of a project (`headrace api-keys add --project`)",
        )
    return caller.project


def _indexed(outcome: object) -> DocumentIndexed:
    if isinstance(outcome, DocumentRejected):
        raise RejectedChange(outcome.data.problem)
    if not isinstance(outcome, DocumentIndexed):
        raise DeadlineExceeded(
            f"the change was published, but is not indexed after {_WAIT.total_seconds():.0f} s",
            "check that workers run; the change is not lost",
        )
    return outcome


def _retrieved(result: SearchResult) -> RetrievedChunk:
    vector = result.scores.vector
    return RetrievedChunk(
        chunk_id=result.chunk_id,
        source_id=source_id_of(result.kind, result.citation.uri),
        source_path=result.citation.uri,
        source_type=result.kind,
        content=result.rendered or result.content,
        relevance_score=result.scores.fused if vector is None else vector.score,
        metadata=result.metadata
        | {"start_line": result.citation.start_line, "end_line": result.citation.end_line},
    )


def _source(row: DocumentRow) -> SourceBody:
    return SourceBody(
        source_id=source_id_of(row.kind, row.uri),
        source_type=row.kind,
        source_path=row.uri,
        chunk_count=row.chunks,
        content_hash=row.content_hash,
        indexed_at=row.updated_at,
        metadata=dict(row.metadata),
    )


def _read(directory: str, path: str, limit_bytes: int) -> str:
    """Read a file below the directory of the gateway, without a link that leads out of it."""
    if not directory:
        raise UsageError(
            "the request has no content, and this gateway reads no files",
            "send `content`, or set `files` in HEADRACE_GATEWAY to a directory",
        )
    root = Path(directory).resolve()
    try:
        file = (root / path).resolve(strict=True)
        if not file.is_relative_to(root):
            raise FileNotFoundError
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, encoding="utf-8") as opened:
            if os.fstat(descriptor).st_size > limit_bytes:
                raise LimitExceeded(
                    f"{path[:200]!r} has over {limit_bytes:,} bytes",
                    "raise HEADRACE_MAX_DOCUMENT_BYTES",
                )
            return opened.read()
    except UnicodeDecodeError:
        raise UnsupportedContent(f"{path[:200]!r} is not UTF-8", "send text in UTF-8") from None
    except (OSError, ValueError):
        raise UsageError(
            f"{path[:200]!r} is not a file below the directory of the gateway", "send `content`"
        ) from None
