"""Receiver of OTLP over HTTP: it keeps the spans that real processes send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.stack import served

__all__ = ["ReceivedSpan", "TraceReceiver", "receiver"]


@dataclass(frozen=True)
class ReceivedSpan:
    """One span as it was sent; ids in hex. ``text`` is all that it contains, for searches."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    links: tuple[tuple[str, str], ...]
    service: str
    failed: bool
    text: str

    @property
    def ids(self) -> tuple[str, str]:
        """Trace and span id."""
        return self.trace_id, self.span_id


@dataclass
class TraceReceiver:
    """The spans received so far."""

    url: str = ""
    spans: list[ReceivedSpan] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that let a process send its spans here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "50"}

    def named(self, name: str, **attributes: Any) -> list[ReceivedSpan]:
        """Spans with a name and attributes, whose names have ``__`` in place of dots."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return [
            span
            for span in self.spans
            if span.name == name and wanted.items() <= span.attributes.items()
        ]

    def trace(self, trace_id: str) -> dict[str, ReceivedSpan]:
        """Spans of a trace by name; the last of each name."""
        return {span.name: span for span in self.spans if span.trace_id == trace_id}

    async def receive(self, request: web.Request) -> web.Response:
        """Keep the spans of one request."""
        message = ExportTraceServiceRequest.FromString(await request.read())
        for resource_spans in message.resource_spans:
            service = _attributes(resource_spans.resource)["service.name"]
            for scope_spans in resource_spans.scope_spans:
                self.spans += [_received(span, service) for span in scope_spans.spans]
        return web.Response(content_type="application/x-protobuf")


def _received(span: Any, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        attributes=_attributes(span),
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        service=service,
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
        text=str(span),
    )


def _attributes(holder: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in holder.attributes
    }


@asynccontextmanager
async def receiver() -> AsyncIterator[TraceReceiver]:
    """Receive on a free port of the loopback interface for the length of a block."""
    received = TraceReceiver()
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/traces", received.receive)
    async with served(app) as received.url:
        yield received
