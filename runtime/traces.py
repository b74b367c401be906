"""Spans of OpenTelemetry, and the trace context that events carry.

Without the API of OpenTelemetry (the base install has only the client) and without an SDK nothing
is recorded, and only the context of a caller is passed on. ``runtime.trace_export`` starts the SDK.

A span never has the text of a question or document, nor the message of an error, which may quote
one.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

try:
    from opentelemetry import context as otel_context
    from opentelemetry import trace as otel
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:  # the base install
    _INSTALLED = False
else:
    _INSTALLED = True
    _tracer = otel.get_tracer("headrace")
    _propagator = TraceContextTextMapPropagator()
    _KINDS = {kind.name.lower(): kind for kind in otel.SpanKind}
    _NO_CONTEXT = otel_context.Context()

__all__ = [
    "NO_SPAN",
    "Attributes",
    "Kind",
    "Operation",
    "Span",
    "child",
    "current",
    "embeddings",
    "log_ids",
    "messaging",
    "remote",
    "span",
    "staged",
    "start",
    "use",
]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Value = str | int | float | bool
Attributes = Mapping[str, Value]
Kind = Literal["internal", "server", "client", "producer", "consumer"]

Operation = Literal["create", "publish", "receive", "process", "ack"]
"""Operation on a message."""

_TYPES = {"publish": "send", "ack": "settle"}
_LONGEST_STATE = 512


class Span:
    """A span of OpenTelemetry, recorded or not. ``NO_SPAN`` is the absence of one."""

    __slots__ = ("_has_caller", "_span")

    def __init__(self, span: otel.Span | None, *, has_caller: bool = False) -> None:
        self._span = span
        self._has_caller = has_caller

    @property
    def is_valid(self) -> bool:
        """Return whether the span belongs to a trace."""
        return self._span is not None and self._span.get_span_context().is_valid

    @property
    def is_recording(self) -> bool:
        """Return whether the span is sampled and has not ended."""
        return self._span is not None and self._span.is_recording()

    @property
    def context(self) -> dict[str, str]:
        """``traceparent`` and, if there is one, ``tracestate`` for an event of this span.

        It is empty if there is nothing to pass on: the span is not sampled, and no caller decided
        that.
        """
        if self._span is None:
            return {}
        context = self._span.get_span_context()
        if not context.is_valid or not (self._has_caller or context.trace_flags.sampled):
            return {}
        trace_id, span_id = (
            otel.format_trace_id(context.trace_id),
            otel.format_span_id(context.span_id),
        )
        carried = {"traceparent": f"00-{trace_id}-{span_id}-{context.trace_flags:02x}"}
        state = context.trace_state.to_header() if context.trace_state else ""
        if 0 < len(state) <= _LONGEST_STATE:
            carried["tracestate"] = state
        return carried

    @property
    def ids(self) -> dict[str, str]:
        """``trace_id`` and ``span_id`` in hex; empty if there is no trace."""
        if self._span is None or not self.is_valid:
            return {}
        context = self._span.get_span_context()
        return {
            "trace_id": otel.format_trace_id(context.trace_id),
            "span_id": otel.format_span_id(context.span_id),
        }

    @property
    def exemplar(self) -> dict[str, str] | None:
        """``trace_id`` in hex for a metric's exemplar; None if the trace is not sampled."""
        if self._span is None:
            return None
        context = self._span.get_span_context()
        if not (context.is_valid and context.trace_flags.sampled):
            return None
        return {"trace_id": otel.format_trace_id(context.trace_id)}

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""
        if self._span is not None:
            self._span.set_attributes(dict(attributes))

    def rename(self, name: str) -> None:
        """Change the name, which may be known only at the end."""
        if self._span is not None:
            self._span.update_name(name)

    def note(self, name: str, attributes: Attributes) -> None:
        """Add an event with the current time."""
        if self._span is not None:
            self._span.add_event(name, dict(attributes))

    def link(self, other: Span) -> None:
        """Add a link to another span."""
        if self._span is not None and other._span is not None:
            self._span.add_link(other._span.get_span_context())

    def fail(self, code: str) -> None:
        """Mark the span as failed, with the code of the error."""
        if self._span is not None:
            self._span.set_status(otel.StatusCode.ERROR)
            self._span.set_attribute("error.type", code)

    def end(self) -> None:
        """End the span; ending it again does nothing."""
        if self.is_recording and self._span is not None:
            self._span.end()


NO_SPAN = Span(None)


def current() -> Span:
    """Return the current span of this task or thread, which may be a caller's."""
    if not _INSTALLED:
        return NO_SPAN
    span = otel.get_current_span()
    return NO_SPAN if span is otel.INVALID_SPAN else Span(span, has_caller=True)


def remote(traceparent: str | None, tracestate: str | None = None) -> Span:
    """Return the span that a trace context names; ``NO_SPAN`` if it is missing or malformed."""
    if not _INSTALLED or traceparent is None:
        return NO_SPAN
    carrier = {"traceparent": traceparent, "tracestate": tracestate or ""}
    span = otel.get_current_span(_propagator.extract(carrier, otel_context.Context()))
    return NO_SPAN if span is otel.INVALID_SPAN else Span(span, has_caller=True)


def start(
    name: str,
    kind: Kind = "internal",
    *,
    parent: Span | None = None,
    links: Iterable[Span] = (),
    attributes: Attributes | None = None,
) -> Span:
    """Start a span that is not current; the caller ends it.

    Args:
        name: name of the span, from a small set.
        kind: kind of the span.
        parent: span above it. None means the current one; with ``NO_SPAN`` it begins a trace.
        links: other spans that it has to do with.
        attributes: attributes that a sampler may read.
    """
    if not _INSTALLED:
        return NO_SPAN
    above = current() if parent is None else parent
    has_caller = above._has_caller
    if type(otel.get_tracer_provider()) is otel.ProxyTracerProvider:
        # no SDK: the caller's context is passed on as it is
        if above._span is None:
            return NO_SPAN
        return Span(otel.NonRecordingSpan(above._span.get_span_context()), has_caller=True)
    context = None if parent is None else _NO_CONTEXT
    if context is not None and above._span is not None:
        context = otel.set_span_in_context(above._span, context)
    started = _tracer.start_span(
        name,
        context,
        _KINDS[kind],
        attributes and dict(attributes),
        [otel.Link(link._span.get_span_context()) for link in links if link._span is not None],
    )
    return Span(started, has_caller=has_caller)


@contextmanager
def use(span: Span) -> Iterator[Span]:
    """Make a span the current one for the length of a block; it is not ended."""
    if span._span is None:
        yield span
        return
    token = otel_context.attach(otel.set_span_in_context(span._span))
    try:
        yield span
    finally:
        otel_context.detach(token)


@contextmanager
def span(
    name: str,
    kind: Kind = "internal",
    *,
    parent: Span | None = None,
    links: Iterable[Span] = (),
    attributes: Attributes | None = None,
) -> Iterator[Span]:
    """Run a block within a new span; an error marks the span as failed. See ``start``."""
    started = start(name, kind, parent=parent, links=links, attributes=attributes)
    if started is NO_SPAN:
        yield started
        return
    try:
        with use(started):
            yield started
    except Exception as error:
        started.fail(getattr(error, "code", type(error).__name__))
        raise
    finally:
        started.end()


@contextmanager
def child(
    name: str, kind: Kind = "internal", *, attributes: Attributes | None = None
) -> Iterator[Span]:
    """Run a block within a new span if the current span is recorded."""
    if not current().is_recording:
        yield NO_SPAN
        return
    with span(name, kind, attributes=attributes) as started:
        yield started


def staged(
    name: str,
) -> Callable[
    [Callable[Arguments, Coroutine[Any, Any, Result]]],
    Callable[Arguments, Coroutine[Any, Any, Result]],
]:
    """Run each call of an async function within a ``child`` span."""

    def decorate(
        function: Callable[Arguments, Coroutine[Any, Any, Result]],
    ) -> Callable[Arguments, Coroutine[Any, Any, Result]]:
        @wraps(function)
        async def call(*positional: Arguments.args, **keywords: Arguments.kwargs) -> Result:
            if not current().is_recording:  # as for most events
                return await function(*positional, **keywords)
            with child(name):
                return await function(*positional, **keywords)

        return call

    return decorate


def messaging(destination: str, operation: Operation, system: str = "redis") -> dict[str, Value]:
    """Return the attributes of each span about messages of a stream."""
    return {
        "messaging.system": system,
        "messaging.destination.name": destination,
        "messaging.operation.name": operation,
        "messaging.operation.type": _TYPES.get(operation, operation),
    }


@contextmanager
def embeddings(model: str, texts: int) -> Iterator[Span]:
    """Run a request to a model within a ``child`` span, by the conventions for such models.

    Args:
        model: full name of the model; it begins with the provider.
        texts: number of texts to be embedded.
    """
    attributes: Attributes = {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": model.partition("/")[0],
        "gen_ai.request.model": model,
        "headrace.texts": texts,
    }
    with child(f"embeddings {model}", "client", attributes=attributes) as started:
        yield started


def log_ids() -> dict[str, str]:
    """Return the ids of the current span for a log line; empty outside of a span."""
    return current().ids
