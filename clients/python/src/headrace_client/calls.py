"""Calls of the HTTP API. Each is described once, and sent by a blocking or an async transport."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx2
from pydantic import BaseModel, ValidationError

from headrace_client.errors import HeadraceError, UsageError, error_of_problem
from headrace_client.models import (
    AnswerList,
    BatchReport,
    Change,
    ChangePage,
    ChangeState,
    ChunkPage,
    Collection,
    CollectionList,
    Document,
    DocumentIndexed,
    DocumentPage,
    Filters,
    Judgement,
    JudgementReceipt,
    Lane,
    Like,
    Move,
    ProjectList,
    ProjectSummary,
    Published,
    QueryAnswer,
    Question,
    QuestionList,
    Receipt,
    ReceiptList,
    Source,
    SourceList,
    Text,
    Weights,
)

__all__ = [
    "EVENT_STREAM",
    "Call",
    "ask",
    "ask_many",
    "batch",
    "change",
    "change_page",
    "chunk_page",
    "collections",
    "count_documents",
    "document",
    "document_page",
    "judge",
    "move",
    "outcomes",
    "projects",
    "publish",
    "put",
    "sources",
    "summary",
    "text",
]

Result = TypeVar("Result")
Model = TypeVar("Model", bound=BaseModel)

_JSON = "application/json"
_LINES = "application/x-ndjson"
_BYTES = "application/octet-stream"
_RANGE = re.compile(r"lines (\d+)-(\d+)/(\d+)")
_PAGE = 200
_SILENCE = timedelta(seconds=30)
"""A stream that is silent for longer is lost: the gateway sends something every 15 s."""

EVENT_STREAM = "text/event-stream"
_ALL = 1
_DEFECT = 500
_OUTCOME = 200
"""Status of a publication whose outcome came in time; without it, the status is 202."""


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


def put(
    project: str,
    uri: str,
    content: str | bytes,
    *,
    title: str | None = None,
    kind: str | None = None,
    media_type: str | None = None,
    collections: Sequence[str] = (),
    metadata: Mapping[str, str] | None = None,
    commit: str | None = None,
    private: bool = False,
    lane: Lane = Lane.LIVE,
    event_id: str | None = None,
    wait: timedelta = timedelta(),
) -> Call[Published]:
    """Publish a document as it is, and wait until it is searchable by keyword.

    Unlike ``upsert``, it takes the bytes of a file, and returns the outcome too.

    Args:
        project: the project of the document.
        uri: name of the document in its project.
        content: the whole text; bytes are in UTF-8.
        title: title of the document, shown in results.
        kind: kind of the content, such as ``markdown``; detected if None.
        media_type: media type of the content, such as ``text/markdown``.
        collections: names by which a question can filter.
        metadata: texts by which a question can filter.
        commit: commit of the repository that has the document.
        private: only the agent of the API key can find the document.
        lane: ``Lane.BULK`` for many changes, so that they don't delay urgent ones.
        event_id: id of the change, which is published once within 24 hours. The default is a new
            id for each call.
        wait: time in which the outcome may come, at most 30 s.

    Raises:
        UsageError: an argument is out of its limits, or the change was rejected.
        EventIdReused: another change was published with this ``event_id``.
        Unavailable: the gateway, or a server behind it, could not be reached before the deadline.
    """
    body = content.encode() if isinstance(content, str) else content
    digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
    params = {
        "uri": uri,
        "title": title,
        "kind": kind,
        "collection": list(collections),
        "commit": commit,
        "private": "true" if private else None,
        "lane": lane.value,
        **{f"meta.{name}": text for name, text in (metadata or {}).items()},
    }
    return Call(
        "PUT",
        _path(project, "/document"),
        _published,
        params=_given(params),
        body=body,
        media_type=media_type or _BYTES,
        headers={"Content-Digest": f"sha-256=:{digest}:", **_once(event_id), **_waiting(wait)},
        takes=wait,
    )


def move(
    project: str,
    uri: str,
    old_uri: str,
    *,
    event_id: str | None = None,
    wait: timedelta = timedelta(),
) -> Call[Published]:
    """Publish the new uri of a stored document, whose content and properties stay the same.

    Args:
        project: the project of the document.
        uri: its new uri.
        old_uri: its uri until now.
        event_id: id of the change; see ``put``.
        wait: time in which the outcome may come, at most 30 s.

    Raises:
        NotFound: there is no such document.
        Conflict: the gateway does not have the exact text; publish it with ``rename``.
        UsageError: an argument is out of its limits, or the change was rejected.
    """
    return Call(
        "POST",
        _path(project, "/document:move"),
        _published,
        body=Move(old_uri=old_uri, uri=uri).model_dump_json().encode(),
        headers={**_once(event_id), **_waiting(wait)},
        takes=wait,
    )


def ask(
    project: str,
    text: str = "",
    *,
    like: str | Like | None = None,
    limit: int = 10,
    mode: Literal["hybrid", "vector", "keyword", "exact"] = "hybrid",
    operators: bool = False,
    regex: bool = False,
    ignore_case: bool = False,
    whole_words: bool = False,
    context_lines: int = 0,
    per_file: bool = False,
    after: str | None = None,
    weights: Weights | None = None,
    filters: Filters | None = None,
    min_event: str | Receipt | None = None,
    overlay: str | None = None,
    vectors: bool = False,
    max_wait: timedelta = timedelta(seconds=5),
    explain: bool = False,
    context_tokens: int | None = None,
    context_tokenizer: str | None = None,
    min_similarity: float | None = None,
    rerank: bool = True,
    min_relevance: float | None = None,
    group: Literal["chunk", "document"] = "chunk",
    sections: bool = False,
    diversity: float = 0.0,
    timeout: timedelta = timedelta(seconds=10),
) -> Call[QueryAnswer]:
    """Return the answer to a question. The agent of the API key also searches its own documents.

    Args:
        project: the project to search.
        text: question, at most 2,000 characters.
        like: in place of a text: the id of a chunk, or its place as ``path:12``.
        limit: number of results, at most 100.
        mode: retrievers to use; ``exact`` finds the lines that match ``text`` instead.
        operators: read ``path:``, ``lang:``, ``symbol:``, ``kind:``, phrases and ``-word`` in
            the text as filters.
        regex: in the mode ``exact``: ``text`` is a regular expression, not a literal.
        ignore_case: in the mode ``exact``: letters of either case match.
        whole_words: in the mode ``exact``: no letter, digit or underscore is next to a match.
        context_lines: in the mode ``exact``: lines before and after a match, at most 20.
        per_file: in the mode ``exact``: only the first result of each document.
        after: in the mode ``exact``: ``next`` of the answer before.
        weights: weight of each retriever in the fusion.
        filters: conditions on the documents to search.
        min_event: a receipt, or its token; the answer must reflect that change.
        overlay: name of an overlay: search the versions of its work tree or branch.
        vectors: also wait until the vectors of that change are searchable.
        max_wait: longest wait for ``min_event`` before a stale answer is returned.
        explain: add an explanation to each result.
        context_tokens: also assemble a context of this many tokens.
        context_tokenizer: tokenizer that counts them, or an OpenAI model that uses it, such as
            ``o200k_base`` or ``gpt-4o``. The default is that of the embedding model.
        min_similarity: least cosine similarity of a result to the question, 0 to 1.
        rerank: let the workers' reranker, if they have one, order the results.
        min_relevance: least relevance of a result by the reranker, 0 to 1. An answer without
            results is marked ``weak`` then.
        group: with ``document``, each result is the best passage of a document, with the places of
            its other matches, and ``limit`` counts documents.
        sections: rank code and other documents apart, each with up to ``limit`` results; each
            result names its ``section``. Without effect if the filters name kinds.
        diversity: 0 to 1; the higher, the more the results differ from each other. 0 is off.
        timeout: time in which the gateway must respond, at most 60 s.

    Raises:
        UsageError: an argument is out of its limits.
        DeadlineExceeded: no answer came in time.
        Unavailable: the gateway, or a server behind it, can't be reached.
    """
    with _checked():
        question = Question(
            text=text,
            like=like,
            limit=limit,
            mode=mode,
            operators=operators,
            regex=regex,
            ignore_case=ignore_case,
            whole_words=whole_words,
            context_lines=context_lines,
            per_file=per_file,
            after=after,
            weights=weights,
            filters=filters or Filters(),
            min_event=min_event.token if isinstance(min_event, Receipt) else min_event,
            overlay=overlay,
            vectors=vectors,
            max_wait_ms=_ms(max_wait),
            explain=explain,
            context_tokens=context_tokens,
            context_tokenizer=context_tokenizer,
            min_similarity=min_similarity,
            rerank=rerank,
            min_relevance=min_relevance,
            group=group,
            sections=sections,
            diversity=diversity,
            timeout_ms=_ms(timeout),
        )
    return Call(
        "POST",
        _path(project, "/ask"),
        _model(QueryAnswer),
        body=question.to_bytes(),
        takes=timeout,
    )


def ask_many(
    project: str, questions: Sequence[str | Question]
) -> Call[tuple[QueryAnswer | HeadraceError, ...]]:
    """Ask up to 16 questions at once; each has its answer or its error, in the same order.

    A text is a question with the defaults of ``ask``.

    Raises:
        UsageError: there is no question, there are too many, or a field is out of its limits.
        Unavailable: the gateway, or a server behind it, can't be reached.
    """
    asked = tuple(
        Question(text=question) if isinstance(question, str) else question for question in questions
    )
    return Call(
        "POST",
        _path(project, "/ask:batch"),
        _answers,
        body=QuestionList(questions=asked).to_bytes(),
        takes=timedelta(milliseconds=max((question.timeout_ms for question in asked), default=0)),
    )


def judge(
    project: str,
    query_id: str,
    chunk_id: int,
    verdict: Literal["shown", "opened", "used", "rejected"],
    *,
    rank: int | None = None,
    event_id: str | None = None,
) -> Call[JudgementReceipt]:
    """Publish what became of one result of an answer of the last hour.

    Args:
        project: the project that was asked.
        query_id: ``query_id`` of the answer.
        chunk_id: ``chunk_id`` of the result.
        verdict: what was done with the result.
        rank: where the result was shown, from 1; by default its rank in the answer.
        event_id: id of the judgement, which counts once. The default is a new id for each call.

    Raises:
        UsageError: an argument is out of its limits.
        Unavailable: the gateway, or a server behind it, can't be reached.
    """
    with _checked():
        judgement = Judgement(query_id=query_id, chunk_id=chunk_id, verdict=verdict, rank=rank)
    return Call(
        "POST",
        _path(project, "/judgements"),
        _model(JudgementReceipt),
        body=judgement.model_dump_json(exclude_none=True).encode(),
        headers=_once(event_id),
    )


def change(
    project: str,
    token: str | None = None,
    *,
    event_id: str | None = None,
    wait: timedelta = timedelta(),
) -> Call[Change | None]:
    """Return a handled change, or None while it waits in the log.

    The gateway waits up to ``wait`` (at most 30 s) for the outcome. Give the token of the change,
    or its event id; that of a signed change, or of one over 24 hours old, is not found.

    Raises:
        NotFound: the project has no such change, or it has the token of a change that was published
            past the gateways and is not handled.
        Conflict: several changes have the event id.
    """
    return Call(
        "GET",
        _path(project, "/change"),
        _handled,
        params=_given({"token": token, "event_id": event_id}),
        headers=_waiting(wait),
        takes=wait,
    )


def outcomes(
    project: str, *, batch: str | None, prefix: str | None, after: str | None
) -> Call[httpx2.Response]:
    """Open the stream of outcomes; the result is a response that is not read yet.

    ``after`` is the id of the last event that was received.
    """
    headers = {"Accept": EVENT_STREAM}
    return Call(
        "GET",
        _path(project, "/events"),
        _stream,
        params=_given({"batch": batch, "prefix": prefix}),
        headers=headers if after is None else headers | {"Last-Event-ID": after},
        takes=_SILENCE,
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


@contextmanager
def _checked() -> Iterator[None]:
    """Report a wrong argument as the gateway would; it can't be sent."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"{where}: {first['msg']}", "correct this argument") from None


def _ms(duration: timedelta) -> int:
    return math.ceil(duration.total_seconds() * 1000)


def _waiting(wait: timedelta) -> dict[str, str]:
    """Return the header that asks the gateway to wait for an outcome."""
    seconds = math.ceil(wait.total_seconds())
    return {"Prefer": f"wait={seconds}"} if seconds > 0 else {}


def _once(event_id: str | None) -> dict[str, str]:
    """Return the header by which every attempt of a call publishes the same event."""
    return {"Idempotency-Key": event_id or str(uuid4())}


def _stream(response: httpx2.Response) -> httpx2.Response:
    media_type = response.headers.get("content-type", "").partition(";")[0]
    if media_type != EVENT_STREAM:
        raise ValueError(f"it is {media_type or 'of no type'}, not an event stream")
    return response


def _published(response: httpx2.Response) -> Published:
    receipt = _model(Receipt)(response)
    has_outcome = response.status_code == _OUTCOME
    return Published(
        token=receipt.token,
        event_id=receipt.event_id,
        duplicate=receipt.duplicate,
        outcome=_model(DocumentIndexed)(response) if has_outcome else None,
    )


def _answers(response: httpx2.Response) -> tuple[QueryAnswer | HeadraceError, ...]:
    request_id = response.headers.get("x-request-id", "")
    return tuple(
        answer if isinstance(answer, QueryAnswer) else _error(answer, request_id)
        for answer in _model(AnswerList)(response).answers
    )


def _error(problem: dict[str, Any], request_id: str) -> HeadraceError:
    seconds = problem.get("retry_after_s")
    return error_of_problem(
        int(problem.get("status", _DEFECT)),
        problem,
        request_id=request_id,
        retry_after=None if seconds is None else timedelta(seconds=seconds),
    )


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
