from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

from events.models import DocumentChange, DocumentChanged
from runtime import traces
from runtime.logs import with_trace_ids
from runtime.traces import NO_SPAN

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-01"
UNSAMPLED = f"00-{TRACE_ID}-{SPAN_ID}-00"


def use_provider(monkeypatch: pytest.MonkeyPatch, provider: TracerProvider) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(traces, "_tracer", provider.get_tracer("headrace"))


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Spans of an SDK that samples every trace."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    use_provider(monkeypatch, provider)
    yield exporter
    provider.shutdown()


@pytest.fixture
def unsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """An SDK that samples nothing that the caller does not sample."""
    use_provider(monkeypatch, TracerProvider(ParentBased(ALWAYS_OFF), shutdown_on_exit=False))


def change(**envelope: str) -> DocumentChanged:
    data = DocumentChange(project="birds", uri="heron.md", content="text")
    return DocumentChanged.model_validate({"data": data, "type": "document.changed", **envelope})


def test_without_an_sdk_only_the_context_of_a_caller_is_passed_on() -> None:
    """Nothing begins a trace, and a caller's context arrives as it was sent."""
    with traces.span("publish") as span:
        assert span is NO_SPAN
        assert change().in_trace(span).traceparent is None
    with traces.use(traces.remote(UNSAMPLED, "a=1")), traces.span("publish") as span:
        assert not span.is_recording
        sent = change().in_trace(span)
    assert (sent.traceparent, sent.tracestate) == (UNSAMPLED, "a=1")


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        "00",
        "nonsense",
        SAMPLED[:-1],
        f"{SAMPLED}-1",
        f"ff{SAMPLED[2:]}",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID.upper()}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{SPAN_ID}-zz",
        "1" * 10_000,
    ],
)
def test_a_malformed_context_begins_a_trace(
    traceparent: str, exported: InMemorySpanExporter
) -> None:
    """A malformed context counts as none, in an event and in an argument."""
    assert traces.remote(traceparent) is NO_SPAN
    assert change(traceparent=traceparent).trace is NO_SPAN
    traces.start("process", parent=traces.remote(traceparent)).end()
    [span] = exported.get_finished_spans()
    assert span.parent is None


@pytest.mark.parametrize("tracestate", ["", "=", "a" * 600, "a=1,,b", "\x00"])
def test_a_malformed_state_does_not_cost_the_context(
    tracestate: str, exported: InMemorySpanExporter
) -> None:
    """The trace continues without the malformed part."""
    span = traces.start("process", parent=traces.remote(SAMPLED, tracestate))
    assert span.ids["trace_id"] == TRACE_ID
    assert change(**span.context).traceparent == span.context["traceparent"]


def test_the_context_of_a_sampled_span_goes_into_an_event(exported: InMemorySpanExporter) -> None:
    """The event names the span; an event that has a context keeps it."""
    with traces.span("publish", "producer") as span:
        sent = change().in_trace(span)
        kept = change(traceparent=SAMPLED).in_trace(span)
    assert sent.trace.ids == span.ids
    assert kept.traceparent == SAMPLED


@pytest.mark.usefixtures("unsampled")
def test_a_trace_that_is_not_sampled_adds_nothing_to_an_event() -> None:
    """Unless a caller decided so: then the workers must know it."""
    with traces.span("publish") as span:
        assert change().in_trace(span).traceparent is None
    with traces.span("publish", parent=traces.remote(UNSAMPLED)) as span:
        traceparent = change().in_trace(span).traceparent
    assert traceparent is not None
    assert traceparent.startswith(f"00-{TRACE_ID}-")
    assert traceparent.endswith("-00")


@pytest.mark.usefixtures("unsampled")
def test_the_flag_of_the_caller_decides() -> None:
    """A sampled caller is recorded even if the sampler would drop a new trace."""
    with traces.span("process", parent=traces.remote(SAMPLED)) as span:
        assert span.is_recording


async def test_stages_are_recorded_within_a_recorded_span_only(
    exported: InMemorySpanExporter,
) -> None:
    """A stage never begins a trace."""

    @traces.staged("cut")
    async def cut(text: str) -> int:
        return len(text)

    assert await cut("text") == 4
    assert exported.get_finished_spans() == ()
    with traces.span("process"):
        assert await cut("text") == 4
    stage, process = exported.get_finished_spans()
    assert (stage.name, stage.parent) == ("cut", process.context)


def test_an_error_marks_its_span_without_its_message(exported: InMemorySpanExporter) -> None:
    """The message may quote a document, so only the kind of the error is recorded."""
    with pytest.raises(ValueError, match="secret"), traces.span("cut"):
        raise ValueError("secret text")
    [span] = exported.get_finished_spans()
    assert span.attributes == {"error.type": "ValueError"}
    assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, None)
    assert span.events == ()


def test_spans_link_to_each_other(exported: InMemorySpanExporter) -> None:
    """A link may be added when the span runs already."""
    first = traces.start("process")
    second = traces.start("batch", parent=NO_SPAN, links=[first])
    first.link(second)
    second.end()
    first.end()
    batch, process = exported.get_finished_spans()
    assert [link.context for link in batch.links] == [process.context]
    assert [link.context for link in process.links] == [batch.context]


def test_log_lines_have_the_ids_of_the_current_span(exported: InMemorySpanExporter) -> None:
    """Outside of a span, a line has none."""
    logger = structlog.get_logger()
    assert with_trace_ids(logger, "info", {"event": "here"}) == {"event": "here"}
    with traces.span("process") as span:
        line = with_trace_ids(logger, "info", {"event": "here"})
    assert json.loads(json.dumps(line)) == {"event": "here", **span.ids}
