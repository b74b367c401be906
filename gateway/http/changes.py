"""Routes of changes: publish them, and follow what becomes of them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Annotated, Any, ClassVar

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException

from events.client.publisher import Receipt
from events.fields import Batch, Text
from events.models import (
    DocumentChange,
    DocumentChanged,
    DocumentIndexed,
    DocumentKind,
    DocumentRejected,
    first_problem,
)
from events.names import Lane
from gateway.auth.callers import Caller, Right
from gateway.http.problems import RejectedChange, problem_of
from gateway.http.services import (
    ANY_NAME,
    CallerOf,
    KeyedRoute,
    Services,
    ServicesOf,
    wait_of,
)
from gateway.knowledge import Published, event_of, valid_change
from runtime.errors import (
    LimitExceeded,
    MalformedEvent,
    UnknownProject,
    UsageError,
)

__all__ = ["router"]

router = APIRouter(tags=["changes"], route_class=KeyedRoute)

_MOST_EVENTS = 1_000
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
_BATCH = "application/cloudevents-batch+json"
_EVENT = "application/cloudevents+json"
_LINES = "application/x-ndjson"
_META = "meta."
_PLACES = {
    "project": ("path", "project"),
    "content": ("body", "content"),
    "content_base64": ("body", "content"),
    "collections": ("query", "collection"),
    "metadata": ("query", _META + ANY_NAME),
    "media_type": ("header", "content-type"),
}
"""Parts of a request that give fields of a change of another name."""
_EVENTS = TypeAdapter(list[dict[str, Any]])
_BYTES = {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}, "required": True}


class ReceiptBody(BaseModel):
    """Confirmation of one change. ``token`` is its log position; a question may wait for it."""

    token: str
    event_id: str
    duplicate: bool

    @classmethod
    def of(cls, receipt: Receipt) -> ReceiptBody:
        """Convert a receipt of the client."""
        return cls(token=receipt.token, event_id=receipt.event_id, duplicate=receipt.duplicate)


class Receipts(BaseModel):
    """Confirmations in the order of the changes, and the batch that the request named."""

    receipts: list[ReceiptBody]
    batch: str | None = None


class Move(BaseModel):
    """A document's present and new uri."""

    model_config = ConfigDict(extra="forbid")

    old_uri: Text
    uri: str


class DocumentOptions(BaseModel):
    """Properties of a document, beside its content. `meta.NAME=VALUE` adds metadata."""

    PREFIXED: ClassVar = (_META + ANY_NAME,)

    uri: str
    kind: DocumentKind | None = None
    title: str | None = None
    collection: list[str] = []
    commit: str | None = None
    lane: Lane = Lane.LIVE
    private: bool = False


IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=128)]
Prefer = Annotated[str | None, Header(examples=["wait=5"])]


@router.put(
    "/v1/projects/{project}/document",
    status_code=202,
    response_model=ReceiptBody,
    openapi_extra={"requestBody": _BYTES},
)
async def put_document(
    request: Request,
    project: str,
    options: Annotated[DocumentOptions, Query()],
    caller: CallerOf,
    services: ServicesOf,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> Response:
    """Publish a document; the body is its content: text in UTF-8, or a file such as a PDF.

    With `Prefer: wait=N`, the response has the outcome if it comes within N seconds.
    """
    caller.require(Right.PUBLISH)
    content = await request.body()
    _check_digest(request, content)
    fields = {
        "project": project,
        "uri": options.uri,
        **await services.knowledge.content_fields(caller, project, options.uri, content),
        "kind": options.kind,
        "title": options.title,
        "collections": tuple(options.collection),
        "commit": options.commit,
        "agent": _agent(caller, private=options.private),
        "metadata": _metadata(request),
        "media_type": _media_type(request),
    }
    try:
        change = DocumentChange.model_validate(fields)
    except ValidationError as error:
        raise RequestValidationError(list(map(_of_request, error.errors()))) from None
    published = await _publish(services, caller, change, options.lane, idempotency_key, prefer)
    return _response(published)


@router.delete("/v1/projects/{project}/document", status_code=202, response_model=ReceiptBody)
async def delete_document(
    project: str,
    uri: str,
    caller: CallerOf,
    services: ServicesOf,
    private: bool = False,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> Response:
    """Publish the deletion of a document; it succeeds for a document that does not exist too."""
    caller.require(Right.PUBLISH)
    agent = _agent(caller, private=private)
    change = valid_change(change="delete", project=project, uri=uri, agent=agent)
    published = await _publish(services, caller, change, Lane.LIVE, idempotency_key, prefer)
    return _response(published)


@router.post("/v1/projects/{project}/document:move", status_code=202, response_model=ReceiptBody)
async def move_document(
    project: str,
    move: Move,
    caller: CallerOf,
    services: ServicesOf,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> Response:
    """Rename a document. Its vectors stay if it has a title, or keeps folder and file name."""
    published = await services.knowledge.move(
        caller, project, move.old_uri, move.uri, event_id=idempotency_key, wait=wait_of(prefer)
    )
    return _response(published)


@router.post(
    "/v1/projects/{project}/changes",
    status_code=202,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                _EVENT: {"schema": {"type": "object"}},
                _BATCH: {"schema": {"type": "array", "items": {"type": "object"}}},
                _LINES: {"schema": {"type": "string"}},
            },
        }
    },
)
async def publish_changes(
    request: Request,
    project: str,
    caller: CallerOf,
    services: ServicesOf,
    lane: Lane = Lane.LIVE,
    batch: Batch | None = None,
) -> Receipts:
    """Publish up to 1,000 CloudEvents: one, a batch, or one per line.

    The attributes of one event may also be headers (`ce-id`, `ce-type`), with its data as the body.

    `batch` names the import of the events that have no attribute `batch` themselves. The id of an
    event makes it safe to repeat the request. If the request fails, some of its events may be
    published; repeat all of them.
    """
    caller.require(Right.PUBLISH)
    caller.scope(project)
    changes = [
        _event(fields, project, batch, index) for index, fields in enumerate(await _fields(request))
    ]
    receipts = await services.knowledge.publish_many(caller, changes, lane=lane)
    return Receipts(receipts=[ReceiptBody.of(receipt) for receipt in receipts], batch=batch)


async def _publish(
    services: Services,
    caller: Caller,
    change: DocumentChange,
    lane: Lane,
    event_id: str | None,
    prefer: str | None,
) -> Published:
    event = event_of(change, event_id)
    return await services.knowledge.publish(caller, event, lane=lane, wait=wait_of(prefer))


def _response(published: Published) -> Response:
    receipt = ReceiptBody.of(published.receipt).model_dump()
    outcome = published.outcome
    if outcome is None:
        return JSONResponse(receipt, 202)
    if isinstance(outcome, DocumentRejected):
        problem = problem_of(RejectedChange(outcome.data.problem))
        body = receipt | problem | {"outcome": "rejected"}
        return JSONResponse(body, problem["status"], media_type="application/problem+json")
    assert isinstance(outcome, DocumentIndexed)  # `wait` follows no vectors here
    body = receipt | outcome.data.model_dump(
        mode="json", exclude={"event_id", "token"}, exclude_none=True
    )
    return JSONResponse(body, 200)


def _of_request(error: Any) -> dict[str, Any]:
    """Replace the field of a change in an error by the part of the request that gave it."""
    field, *rest = error["loc"] or ("content",)
    if field == "metadata" and rest:
        return {**error, "loc": ("query", f"{_META}{rest[0]}")}
    return {**error, "loc": _PLACES.get(field, ("query", field))}


def _agent(caller: Caller, *, private: bool) -> str | None:
    if not private:
        return None
    if caller.agent is None:
        raise UsageError(
            "this API key has no agent, so it has no private documents",
            "leave `private` out, or use a key with an agent",
        )
    return caller.agent


def _media_type(request: Request) -> str | None:
    """Media type of a document; the usual ones of HTTP libraries say nothing about it."""
    named = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    silent = {"", "application/octet-stream", "application/x-www-form-urlencoded"}
    return None if named in silent else named


def _metadata(request: Request) -> dict[str, str]:
    return {
        name.removeprefix(_META): text
        for name, text in request.query_params.items()
        if name.startswith(_META)
    }


def _check_digest(request: Request, content: bytes) -> None:
    header = request.headers.get("content-digest")
    if header is None:
        return
    digest = _DIGEST.search(header)
    if digest is None:
        raise UsageError("Content-Digest has no SHA-256", "send it as `sha-256=:BASE64:`")
    if base64.b64decode(digest[1]) != hashlib.sha256(content).digest():
        raise UsageError("the body does not match Content-Digest", "send the body again")


async def _fields(request: Request) -> list[dict[str, Any]]:
    """Parse the body of a request into the fields of its events."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    try:
        if "ce-type" in request.headers:  # the media type is that of the data
            fields = [_binary(request, json.loads(body))]
        elif media_type == _LINES:
            fields = [json.loads(line) for line in body.splitlines() if line.strip()]
        elif media_type in {_BATCH, "application/json"}:
            fields = json.loads(body)
            fields = fields if isinstance(fields, list) else [fields]
        elif media_type == _EVENT:
            fields = [json.loads(body)]
        else:
            raise HTTPException(415, f"the media type {media_type[:80]!r} holds no events")
        events = _EVENTS.validate_python(fields)
    except (ValueError, RecursionError) as error:
        reason = first_problem(error) if isinstance(error, ValidationError) else "it is not JSON"
        raise HTTPException(400, f"the body holds no events: {reason}") from None
    if len(events) > _MOST_EVENTS:
        raise LimitExceeded(f"{len(events):,} events", f"send at most {_MOST_EVENTS:,} at once")
    return events


def _binary(request: Request, data: Any) -> dict[str, Any]:
    """Fields of an event in the binary mode of CloudEvents: attributes are headers."""
    attributes = {
        name.removeprefix("ce-"): text
        for name, text in request.headers.items()
        if name.startswith("ce-")
    }
    return attributes | {"data": data}


def _event(fields: dict[str, Any], project: str, batch: str | None, index: int) -> DocumentChanged:
    data = fields.get("data")
    if isinstance(data, dict):
        if data.setdefault("project", project) != project:
            raise UnknownProject(
                f"event {index} is for another project than the path", f"use {project!r}"
            )
        fields = {"type": DocumentChanged.TYPE} | fields
    if batch is not None and fields.get("batch") is None:
        fields = fields | {"batch": batch}
    try:
        return DocumentChanged.model_validate(fields)
    except ValidationError as error:
        raise MalformedEvent(
            f"event {index}: {first_problem(error)}", "docs/reference lists the fields"
        ) from None
