"""Calls of the HTTP API. Each is described once, and sent by a blocking or an async transport."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel

from headrace_client.models import (
    BatchReport,
    Change,
    ChangePage,
    ChangeState,
    ChunkPage,
    Collection,
    CollectionList,
    Document,
    DocumentPage,
    Filters,
    Lane,
    ProjectList,
    ProjectSummary,
    QueryAnswer,
    Question,
    Receipt,
    ReceiptList,
    Source,
    SourceList,
    Text,
    Weights,
)

__all__ = [
    "Call",
    "ask",
    "batch",
    "change",
    "change_page",
    "chunk_page",
    "collections",
    "count_documents",
    "document",
    "document_page",
    "projects",
    "publish",
    "sources",
    "summary",
    "text",
]

Result = TypeVar("Result")
Model = TypeVar("Model", bound=BaseModel)

_JSON = "application/json"
_LINES = "application/x-ndjson"
_RANGE = re.compile(r"lines (\d+)-(\d+)/(\d+)")
_PAGE = 200
_ALL = 1


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """One request, which is safe to repeat, and the reader of its response.

    ``parse`` raises ValueError for a response that it can't read. ``takes`` is the time that the
    gateway may wait before it responds.
    """

    method: str
    path: str
    parse: Callable[[httpx2.Response], Result]
    params: Mapping[str, str | int | Sequence[str]] = field(default_factory=dict)
    body: bytes | None = None
    media_type: str = _JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    takes: timedelta = timedelta()


def publish(project: str, lines: bytes, lane: Lane) -> Call[tuple[Receipt, ...]]:
    """Publish events, one per line; the receipts have their order."""
    return Call(
        "POST",
        _path(project, "/changes"),
        lambda response: _model(ReceiptList)(response).receipts,
        params={"lane": lane.value},
        body=lines,
        media_type=_LINES,
    )


def ask(
    project: str,
    text: str,
    *,
    limit: int = 10,
    mode: Literal["hybrid", "vector", "keyword"] = "hybrid",
    weights: Weights | None = None,
    filters: Filters | None = None,
    min_event: str | Receipt | None = None,
    vectors: bool = False,
    max_wait: timedelta = timedelta(seconds=5),
    explain: bool = False,
    context_tokens: int | None = None,
    min_similarity: float | None = None,
    timeout: timedelta = timedelta(seconds=10),
) -> Call[QueryAnswer]:
    """Return the answer to a question. The agent of the API key also searches its own documents.

    Args:
        project: the project to search.
        text: question, at most 2,000 characters.
        limit: number of results, at most 100.
        mode: retrievers to use.
        weights: weight of each retriever in the fusion.
        filters: conditions on the documents to search.
        min_event: a receipt, or its token; the answer must reflect that change.
        vectors: also wait until the vectors of that change are searchable.
        max_wait: longest wait for ``min_event`` before a stale answer is returned.
        explain: add an explanation to each result.
        context_tokens: also assemble a context of this many tokens.
        min_similarity: least cosine similarity of a result to the question, 0 to 1.
        timeout: time in which the gateway must respond, at most 60 s.

    Raises:
        UsageError: an argument is out of its limits.
        DeadlineExceeded: no answer came in time.
        Unavailable: the gateway, or a server behind it, can't be reached.
    """
    question = Question(
        text=text,
        limit=limit,
        mode=mode,
        weights=weights,
        filters=filters or Filters(),
        min_event=min_event.token if isinstance(min_event, Receipt) else min_event,
        vectors=vectors,
        max_wait_ms=_ms(max_wait),
        explain=explain,
        context_tokens=context_tokens,
        min_similarity=min_similarity,
        timeout_ms=_ms(timeout),
    )
    return Call(
        "POST",
        _path(project, "/ask"),
        _model(QueryAnswer),
        body=question.to_bytes(),
        takes=timeout,
    )


def change(project: str, token: str, *, wait: timedelta = timedelta()) -> Call[Change | None]:
    """Return a handled change, or None while it waits in the log.

    The gateway waits up to ``wait`` (at most 30 s) for the outcome.

    Raises:
        NotFound: the project has no such change, or it was published past the gateways and is not
            handled.
    """
    seconds = math.ceil(wait.total_seconds())
    return Call(
        "GET",
        _path(project, "/change"),
        _handled,
        params={"token": token},
        headers={"Prefer": f"wait={seconds}"} if seconds > 0 else {},
        takes=wait,
    )


def change_page(
    project: str, after: str | None, *, state: str | None, uri: str | None
) -> Call[ChangePage]:
    """Return one page of handled changes, newest first."""
    params = {"after": after, "state": state, "uri": uri, "limit": _PAGE}
    return Call("GET", _path(project, "/changes"), _model(ChangePage), params=_given(params))


def batch(project: str, batch_id: str) -> Call[BatchReport]:
    """Return the progress of a batch, and the latest of its changes that were rejected.

    Raises:
        NotFound: nothing of the batch was published.
    """
    path = _path(project, f"/batch/{quote(batch_id, safe='')}")
    return Call("GET", path, _model(BatchReport))


def projects() -> Call[tuple[ProjectSummary, ...]]:
    """List the projects that the API key is valid for."""
    return Call("GET", "/v1/projects", lambda response: _model(ProjectList)(response).items)


def summary(project: str) -> Call[ProjectSummary]:
    """Return size, recipe and freshness of the project.

    Raises:
        UnknownProject: it has no change yet, or the API key is of another project.
    """
    return Call("GET", _path(project), _model(ProjectSummary))


def document(project: str, uri: str) -> Call[Document]:
    """Return a document, without its text.

    Raises:
        NotFound: there is no such document.
    """
    return Call("GET", _path(project, "/document"), _model(Document), params={"uri": uri})


def document_page(
    project: str,
    after: str | None,
    *,
    prefix: str | None,
    kind: str | None,
    collection: str | None,
    source: str | None,
) -> Call[DocumentPage]:
    """Return one page of documents by uri."""
    params = _conditions(prefix, kind, collection, source) | {"limit": _PAGE}
    return Call(
        "GET",
        _path(project, "/documents"),
        _model(DocumentPage),
        params=_given(params | {"after": after}),
    )


def count_documents(
    project: str,
    *,
    prefix: str | None = None,
    kind: str | None = None,
    collection: str | None = None,
    source: str | None = None,
) -> Call[int]:
    """Return the exact number of the documents that ``documents`` lists."""

    def total(response: httpx2.Response) -> int:
        counted = _model(DocumentPage)(response).total
        if counted is None:
            raise ValueError("the page has no total")
        return counted

    params = _conditions(prefix, kind, collection, source) | {"limit": _ALL, "count": "true"}
    return Call("GET", _path(project, "/documents"), total, params=_given(params))


def text(project: str, uri: str, *, lines: tuple[int, int] | None = None) -> Call[Text]:
    """Return the text of a document, or its lines from the first to the second of ``lines``.

    Raises:
        NotFound: there is no such document.
    """
    wanted = None if lines is None else f"{lines[0]}-{lines[1]}"
    return Call("GET", _path(project, "/text"), _text, params=_given({"uri": uri, "lines": wanted}))


def chunk_page(project: str, after: int | None, *, uri: str) -> Call[ChunkPage]:
    """Return one page of the chunks of a document."""
    params = _given({"uri": uri, "after": after, "limit": _PAGE})
    return Call("GET", _path(project, "/chunks"), _model(ChunkPage), params=params)


def collections(project: str) -> Call[tuple[Collection, ...]]:
    """List the collections of the project."""
    path = _path(project, "/collections")
    return Call("GET", path, lambda response: _model(CollectionList)(response).items)


def sources(project: str) -> Call[tuple[Source, ...]]:
    """List the sources of the project, with their last sync."""
    path = _path(project, "/sources")
    return Call("GET", path, lambda response: _model(SourceList)(response).items)


def _path(project: str, rest: str = "") -> str:
    return f"/v1/projects/{quote(project, safe='')}{rest}"


def _ms(duration: timedelta) -> int:
    return math.ceil(duration.total_seconds() * 1000)


def _conditions(
    prefix: str | None, kind: str | None, collection: str | None, source: str | None
) -> dict[str, Any]:
    return {"prefix": prefix, "kind": kind, "collection": collection, "source": source}


def _given(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _model(model: type[Model]) -> Callable[[httpx2.Response], Model]:
    return lambda response: model.model_validate_json(response.content)


def _handled(response: httpx2.Response) -> Change | None:
    state = _model(ChangeState)(response).state
    return None if state == "waiting" else _model(Change)(response)


def _text(response: httpx2.Response) -> Text:
    lines = _RANGE.fullmatch(response.headers.get("content-range", ""))
    if lines is None:
        raise ValueError("the text has no lines")
    first, last, total = map(int, lines.groups())
    content_hash = response.headers.get("etag", "").strip('"') or None
    return Text(
        text=response.content.decode(),
        first=first,
        last=last,
        total=total,
        content_hash=content_hash,
    )
