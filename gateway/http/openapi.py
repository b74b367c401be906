"""OpenAPI document of the gateway: that of FastAPI, with access, problems and examples."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gateway.auth.callers import Right
from gateway.http.problems import HTTP_CODES, PROBLEM_TYPE

__all__ = [
    "METHODS",
    "ROUTES",
    "Operation",
    "Parameter",
    "RouteDescription",
    "operations",
    "use_document",
]

EVENT_STREAM = "text/event-stream"
METHODS = ("get", "put", "post", "delete")

_PROJECT = "/v1/projects/{project}"
_EVENTS = "application/cloudevents-batch+json"
_TOKEN = "live:0:1767225600000-0"  # noqa: S105 - a position in the log


@dataclass(frozen=True, slots=True)
class RouteDescription:
    """Properties of a route that its code does not declare.

    ``right`` is None for a route that needs no right; ``is_open`` routes need no API key either.
    ``parameters`` and ``body`` are those of the example. ``errors`` are statuses beside the usual.
    """

    right: Right | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    media_type: str = "application/json"
    errors: tuple[int, ...] = ()
    is_open: bool = False
    responds_with: str = "application/json"


def _route(right: Right, body: Any = None, /, **parameters: Any) -> RouteDescription:
    return RouteDescription(right, parameters, body)


_DOCUMENT = RouteDescription(
    Right.PUBLISH,
    {
        "uri": "birds/herons.md",
        "title": "Herons",
        "idempotency-key": "import-1",
        "prefer": "wait=5",
    },
    "# Herons\n\nHerons nest in March.\n",
    "text/markdown",
    (409,),
)
_CHANGES = RouteDescription(
    Right.PUBLISH,
    {"batch": "spring-import"},
    [
        {
            "id": "import-2",
            "data": {"uri": "birds/owls.md", "content": "# Owls\n\nOwls hunt at night."},
        }
    ],
    _EVENTS,
)
_TEXT = RouteDescription(
    Right.READ, {"uri": "birds/herons.md", "lines": "1-3"}, responds_with="text/plain"
)

_EVENT_STREAM = RouteDescription(Right.READ, responds_with=EVENT_STREAM)
_STATUS_STREAM = RouteDescription(Right.OPERATE, responds_with=EVENT_STREAM)
_REPLAY_STREAM = RouteDescription(
    Right.OPERATE, {"replay_id": "7f3b2c1d"}, responds_with=EVENT_STREAM
)

ROUTES: Mapping[str, RouteDescription] = {
    "GET /healthz": RouteDescription(is_open=True),
    "GET /readyz": RouteDescription(is_open=True),
    "GET /metrics": RouteDescription(is_open=True, responds_with="text/plain"),
    "GET /asyncapi.json": RouteDescription(is_open=True),
    f"POST {_PROJECT}/ask": _route(Right.ASK, {"text": "when do herons nest?", "limit": 3}),
    f"GET {_PROJECT}/ask": _route(Right.ASK, q="when do herons nest?", limit=3),
    f"POST {_PROJECT}/ask:batch": _route(
        Right.ASK, {"questions": [{"text": "herons"}, {"text": "owls", "mode": "keyword"}]}
    ),
    f"POST {_PROJECT}/judgements": _route(
        Right.ASK,
        {"query_id": "0f3c5a7b9d1e4c6f8a2b4d6e8f0a1c3e", "chunk_id": 12, "verdict": "used"},
    ),
    f"PUT {_PROJECT}/document": _DOCUMENT,
    f"DELETE {_PROJECT}/document": _route(Right.PUBLISH, uri="birds/herons.md"),
    f"GET {_PROJECT}/document": _route(Right.READ, uri="birds/herons.md"),
    f"POST {_PROJECT}/document:move": _route(
        Right.PUBLISH, {"old_uri": "birds/herons.md", "uri": "birds/grey-herons.md"}
    ),
    f"POST {_PROJECT}/changes": _CHANGES,
    f"GET {_PROJECT}/changes": _route(Right.READ, state="indexed", limit=20),
    f"GET {_PROJECT}/change": RouteDescription(
        Right.READ, {"token": _TOKEN, "prefer": "wait=5"}, errors=(409,)
    ),
    f"GET {_PROJECT}/batch/{{batch}}": _route(Right.READ, batch="sync-1"),
    "GET /v1/projects": _route(Right.READ),
    f"GET {_PROJECT}": _route(Right.READ),
    f"GET {_PROJECT}/documents": _route(Right.READ, prefix="birds/", limit=20, count=True),
    f"GET {_PROJECT}/text": _TEXT,
    f"GET {_PROJECT}/chunks": _route(Right.READ, uri="birds/herons.md"),
    f"GET {_PROJECT}/collections": _route(Right.READ),
    f"GET {_PROJECT}/sources": _route(Right.READ),
    "POST /rag/index": _route(
        Right.PUBLISH,
        {
            "source_type": "markdown",
            "source_path": "birds/herons.md",
            "content": "# Herons\n\nHerons nest in March.\n",
            "metadata": {"team": "field"},
        },
    ),
    "POST /rag/retrieve": _route(Right.ASK, {"query": "when do herons nest?", "top_k": 3}),
    "GET /rag/sources": _route(Right.READ, limit=20),
    "DELETE /rag/sources/{source_id}": _route(
        Right.PUBLISH, source_id="4c2743e7cc171c55db8025e10cdb23e2"
    ),
    f"GET {_PROJECT}/events": _EVENT_STREAM,
    "GET /v1/status": _route(Right.OPERATE),
    "GET /v1/status/events": _STATUS_STREAM,
    "GET /v1/replay/{replay_id}/events": _REPLAY_STREAM,
    "GET /v1/history": _route(Right.OPERATE, minutes=60),
    "GET /v1/dead-letters": _route(Right.OPERATE, error="LimitExceeded", limit=20),
    "GET /v1/dead-letters/counts": _route(Right.OPERATE),
    "GET /v1/dead-letter": _route(Right.OPERATE, id="changed.live:1767225600000-0"),
    "POST /v1/dead-letters:redrive": _route(
        Right.OPERATE, {"ids": ["changed.live:1767225600000-0"]}
    ),
    "POST /v1/dead-letters:drop": _route(
        Right.OPERATE, {"filter": {"error": "LimitExceeded"}, "count": 0}
    ),
    "GET /v1/replays": _route(Right.OPERATE),
    "GET /v1/replay/{replay_id}": _route(Right.OPERATE, replay_id="7f3b2c1d"),
    "DELETE /v1/replay/{replay_id}": _route(Right.OPERATE, replay_id="7f3b2c1d"),
    f"POST {_PROJECT}/replays": _route(Right.OPERATE, {"dry_run": True}),
    f"GET {_PROJECT}/generations": _route(Right.OPERATE),
    f"POST {_PROJECT}/generation/{{generation}}:switch": _route(Right.OPERATE, generation=2),
    f"POST {_PROJECT}:rollback": _route(Right.OPERATE),
    f"DELETE {_PROJECT}/generation/{{generation}}": _route(Right.OPERATE, generation=2),
    f"GET {_PROJECT}/evaluations": _route(Right.OPERATE),
    "GET /v1/evaluation/{evaluation_id}": _route(Right.OPERATE, evaluation_id="7f3b2c1d"),
}
"""Descriptions by method and path."""

_USUAL = (401, 403, 404, 422, 429, 503)
_BODY = (400, 413, 415)
_MEANINGS = {
    401: "No API key, or one that is not valid.",
    403: "The API key lacks the right.",
    404: "There is no such resource, or the API key is of another project.",
    409: "The event id was used for another change, or another operation is in the way.",
    422: "A field or a parameter is out of its limits, or unknown.",
    429: "A rate limit is used up; `Retry-After` gives the seconds to wait.",
    503: "A server can't be reached, or too much is in flight; `Retry-After` gives the seconds.",
    504: "No reply came in time.",
}
_PROBLEM: Mapping[str, Any] = {
    "title": "Problem",
    "description": "Description of an error (RFC 9457).",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail", "remedy", "retryable"],
    "properties": {
        "type": {"type": "string", "description": "`urn:headrace:problem:` and the code."},
        "title": {"type": "string", "description": "Meaning of the code."},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "code": {"type": "string", "description": "Name of the error; /problems explains it."},
        "detail": {"type": "string", "description": "Event, with values."},
        "remedy": {"type": "string", "minLength": 1, "description": "Advice for a person."},
        "retryable": {"type": "boolean", "description": "The same request may succeed later."},
        "retry_after_s": {"type": "integer", "minimum": 1},
        "instance": {"type": "string", "description": "`urn:uuid:` and the id of the request."},
        "errors": {
            "type": "array",
            "description": "Wrong fields; `pointer` is a JSON pointer, or `?` and a parameter.",
            "items": {
                "type": "object",
                "required": ["pointer", "detail"],
                "properties": {
                    "pointer": {"type": "string"},
                    "parameter": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
    },
}
_OUTCOME: Mapping[str, Any] = {
    "description": "The outcome came within the time of `Prefer: wait=N`.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["token", "event_id", "duplicate", "outcome"],
                "properties": {
                    "token": {"type": "string"},
                    "event_id": {"type": "string"},
                    "duplicate": {"type": "boolean"},
                    "outcome": {"type": "string"},
                },
            }
        }
    },
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One route of an OpenAPI document, with its example."""

    method: str
    path: str
    description: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"

    @property
    def right(self) -> str:
        """Right that the route needs; empty if it needs none."""
        return str(self.description.get("x-right", ""))

    @property
    def parameters(self) -> list[Mapping[str, Any]]:
        """Parameters of address and header."""
        return list(self.description.get("parameters", ()))

    @property
    def is_stream(self) -> bool:
        """True if its response has no end."""
        return EVENT_STREAM in self.description["responses"].get("200", {}).get("content", {})

    @property
    def is_open(self) -> bool:
        """True if the route needs no API key."""
        return self.description.get("security") == []

    @property
    def body(self) -> tuple[str, Any] | None:
        """Media type and example of the body; None if there is none."""
        content = self.description.get("requestBody", {}).get("content", {})
        named = ((kind, media["example"]) for kind, media in content.items() if "example" in media)
        return next(named, None)

    @property
    def example(self) -> Mapping[str, Any]:
        """Parameters of the example by their name."""
        return {
            parameter["name"]: parameter["example"]
            for parameter in self.parameters
            if "example" in parameter
        }

    @property
    def body_text(self) -> str:
        """Example of the body as it is sent."""
        if self.body is None:
            return ""
        sent = self.body[1]
        return sent if isinstance(sent, str) else json.dumps(sent, ensure_ascii=False)

    @property
    def parameter_rows(self) -> list[Parameter]:
        """Parameters with their type in words."""
        return [
            Parameter(
                parameter["name"],
                parameter["in"],
                _type(parameter["schema"]),
                bool(parameter.get("required")),
            )
            for parameter in self.parameters
        ]

    @property
    def statuses(self) -> list[str]:
        """Statuses of its responses, in their order."""
        return sorted(status for status in self.description["responses"] if status.isdigit())

    @property
    def curl(self) -> str:
        """The example as a command of a shell."""
        path, query, headers = self.path, {}, []
        for parameter in self.parameters:
            name, place = parameter["name"], parameter["in"]
            if "example" not in parameter:
                continue
            text = _query_text(parameter["example"])
            if place == "path":
                path = path.replace(f"{{{name}}}", quote(text, safe=""))
            elif place == "query":
                query[name] = text
            else:
                headers.append(f"{name}: {text}")
        address = f"$HEADRACE_URL{path}" + (f"?{urlencode(query)}" if query else "")
        lines = [f'curl -X {self.method} "{address}"']
        if not self.is_open:
            lines.append('-H "Authorization: Bearer $HEADRACE_API_KEY"')
        if self.body is not None:
            headers.append(f"Content-Type: {self.body[0]}")
        lines += [f"-H {shlex.quote(header)}" for header in headers]
        if self.body is not None:
            lines.append(f"--data-binary {shlex.quote(self.body_text)}")
        return " \\\n  ".join(lines)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a route; ``place`` is path, query or header."""

    name: str
    place: str
    kind: str
    required: bool


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _type(schema: Mapping[str, Any]) -> str:
    """Type of a parameter in words, without null."""
    if "anyOf" in schema:
        kinds = [_type(part) for part in schema["anyOf"] if part.get("type") != "null"]
        return " or ".join(kinds)
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"{_type(schema['items'])}, repeatable"
    name = str(schema.get("type") or schema.get("$ref", "").rpartition("/")[2])
    low, high = schema.get("minimum"), schema.get("maximum")
    return name if low is None or high is None else f"{name}, {low:,} to {high:,}"


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    """List the routes of an OpenAPI document in their order."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield Operation(method.upper(), path, item[method])


def use_document(app: FastAPI) -> None:
    """Let the application serve and cache its OpenAPI document."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]  # as FastAPI describes it


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary="Knowledge index over an event log",
        description="Every error is a problem (RFC 9457) with its remedy.",
        routes=app.routes,
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = _PROBLEM
    components["securitySchemes"] = {
        "api_key": {
            "type": "http",
            "scheme": "bearer",
            "bearerFormat": "hr_ID_SECRET",
            "description": "API key (`headrace api-keys add`).",
        }
    }
    components["responses"] = {
        str(status): _problem_response(status) for status in (*_MEANINGS, *HTTP_CODES)
    }
    document["security"] = [{"api_key": []}]
    for operation in operations(document):
        _complete(document["paths"][operation.path][operation.method.lower()], operation)
    return document


def _problem_response(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    meaning = _MEANINGS.get(status, f"{HTTPStatus(status).phrase}.")
    return {"description": meaning, "content": {PROBLEM_TYPE: {"schema": schema}}}


def _complete(described: dict[str, Any], operation: Operation) -> None:
    """Add access, errors and the example to one route."""
    route = ROUTES.get(operation.name, RouteDescription())
    responses = described["responses"]
    responses.pop("422", None)
    if route.is_open:
        described["security"] = []
    else:
        sends = "requestBody" in described
        for status in sorted({*_USUAL, *(_BODY if sends else ()), *route.errors}):
            responses[str(status)] = {"$ref": f"#/components/responses/{status}"}
        responses["default"] = _problem_response(500)
    if route.right is not None:
        described["x-right"] = route.right.value
    if operation.path.partition("{project}/")[2] in {"document", "document:move"} and (
        operation.method != "GET"
    ):
        responses["200"] = _OUTCOME
    if operation.name == f"POST {_PROJECT}/replays":
        responses["200"] = {**responses["202"], "description": "Estimate, with `dry_run`."}
    if route.responds_with != "application/json":
        responses["200"]["content"] = {route.responds_with: {"schema": {"type": "string"}}}
    examples = {"project": "docs", **route.parameters}
    for parameter in described.get("parameters", ()):
        if parameter["name"] in examples:
            parameter["example"] = examples[parameter["name"]]
    if route.body is not None:
        content = described["requestBody"]["content"]
        media = content.setdefault(route.media_type, {"schema": {"type": "string"}})
        media["example"] = route.body
