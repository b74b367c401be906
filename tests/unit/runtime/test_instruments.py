"""Exemplars: the traces that histograms name."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from runtime import traces
from runtime.instruments import Histogram, exposition
from runtime.traces import NO_SPAN, Span

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
FIRST, SECOND = "0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736"


def remote(trace_id: str, flags: str = "01") -> Span:
    return traces.remote(f"00-{trace_id}-b7ad6b7169203331-{flags}")


def exemplars_of(histogram: Histogram) -> dict[str, str]:
    """Trace of each bucket that has an exemplar, by the bucket's bound."""
    content = exposition(histogram.families(), OPENMETRICS).decode()
    families = text_string_to_metric_families(content)  # type: ignore[no-untyped-call]
    return {
        sample.labels["le"]: sample.exemplar.labels["trace_id"]
        for family in families
        for sample in family.samples
        if sample.exemplar is not None
    }


def test_a_bucket_names_the_trace_of_its_latest_sampled_value() -> None:
    histogram = Histogram("wait_seconds", "Wait.", "stage", buckets=(1, 2))
    with traces.use(remote(FIRST)):
        histogram.observe(0.5, stage="cut")
        histogram.observe(1.5, stage="cut")
    with traces.use(remote(SECOND)):
        histogram.observe(1.6, stage="cut")
    histogram.observe(1.7, stage="cut")
    assert exemplars_of(histogram) == {"1.0": FIRST, "2.0": SECOND}
    assert histogram.read()["wait_seconds{stage=cut}.count"] == 4


def test_a_value_can_belong_to_another_span_than_the_current_one() -> None:
    """Changes of a batch are counted together, and each has its own trace."""
    histogram = Histogram("wait_seconds", "Wait.", buckets=(1, 2))
    with traces.use(remote(FIRST)):
        histogram.observe(0.5, remote(SECOND))
        histogram.observe(1.5, NO_SPAN)
    assert exemplars_of(histogram) == {"1.0": SECOND}


def test_a_timed_block_names_its_trace() -> None:
    histogram = Histogram("wait_seconds", "Wait.", buckets=(60,))
    with traces.use(remote(FIRST)), histogram.time():
        pass
    assert exemplars_of(histogram) == {"60.0": FIRST}


@pytest.mark.parametrize("span", [NO_SPAN, remote(FIRST, flags="00")])
def test_without_a_sampled_trace_there_is_no_exemplar(span: Span) -> None:
    """A trace that is not sampled can't be looked up."""
    histogram = Histogram("wait_seconds", "Wait.", buckets=(1,))
    with traces.use(span):
        histogram.observe(0.5)
    assert exemplars_of(histogram) == {}
    assert histogram.read()["wait_seconds.count"] == 1


def test_the_text_format_of_prometheus_has_no_exemplars() -> None:
    histogram = Histogram("wait_seconds", "Wait.", buckets=(1,))
    with traces.use(remote(FIRST)):
        histogram.observe(0.5)
    assert FIRST in exposition(histogram.families(), OPENMETRICS).decode()
    assert FIRST not in exposition(histogram.families()).decode()
