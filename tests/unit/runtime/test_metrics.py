"""Counting, the guard of labels, snapshots and expositions."""

from __future__ import annotations

import json
import math
import re

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from runtime.metrics import (
    BUILD_INFO,
    Counter,
    Gauge,
    Histogram,
    Scope,
    content_type,
    declared,
    exposition,
    own_families,
    snapshot,
)

FINE = tuple(1e-4 * 1.19**step for step in range(90))
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
UNITS = {"_seconds", "_bytes", "_total", "_info", "_entries", "_tokens"}
WITHOUT_UNIT = {
    "headrace_http_in_flight",
    "headrace_model_circuit_state",
    "headrace_model_requests_waiting",
}


def test_counter_splits_by_label() -> None:
    """Each combination of label values is a separate series."""
    counter = Counter("documents", "", "outcome")
    counter.inc(outcome="indexed")
    counter.inc(2, outcome="indexed")
    counter.inc(outcome="duplicate")
    assert counter.read() == {"documents{outcome=indexed}": 3, "documents{outcome=duplicate}": 1}


def test_undeclared_label_is_refused() -> None:
    """An undeclared label raises ValueError."""
    with pytest.raises(ValueError, match="has the labels"):
        Counter("documents", "", "outcome").inc(result="indexed")


def test_hostile_label_values_do_not_fill_the_memory() -> None:
    """After 100 label values, further ones share a series."""
    counter = Counter("documents", "", "outcome")
    for number in range(1000):
        counter.inc(outcome=str(number))
    assert len(counter.read()) == 101
    assert counter.read()["documents{outcome=other}"] == 900


@pytest.mark.parametrize("seconds", [0.0002, 0.04, 1.7, 90.0])
def test_histogram_quantiles_are_near(seconds: float) -> None:
    """A quantile is at most 20 % above the true one."""
    histogram = Histogram("answer_seconds", "", buckets=FINE)
    for _ in range(99):
        histogram.observe(seconds)
    histogram.observe(seconds * 100)
    values = histogram.read()
    assert seconds <= values["answer_seconds.p50"] <= seconds * 1.2
    assert values["answer_seconds.count"] == 100
    assert values["answer_seconds.p99"] <= seconds * 1.2


def test_histogram_takes_extremes() -> None:
    """Zero and very large values are counted."""
    histogram = Histogram("answer_seconds", "", buckets=FINE)
    histogram.observe(0)
    histogram.observe(1e9)
    assert histogram.read()["answer_seconds.count"] == 2


def test_values_are_read_from_the_snapshot_of_another_process() -> None:
    """Metrics whose names begin alike are kept apart."""
    waiting = Gauge("waiting", "", "provider")
    seconds = Histogram("waiting_seconds", "", "provider", buckets=FINE)
    total = Counter("waiting_total", "")
    waiting.set(3, provider="a}b=c")
    waiting.set(4, provider="d")
    seconds.observe(0, provider="d")
    total.inc(5)
    snapshot = waiting.read() | seconds.read() | total.read()
    assert waiting.values_in(snapshot) == {"a}b=c": 3, "d": 4}
    assert seconds.values_in(snapshot, "count") == {"d": 1}
    assert total.values_in(snapshot) == {"": 5}
    assert total.values_in({}) == {}


def test_each_label_has_its_own_guard() -> None:
    """A flood of projects does not hide the lanes."""
    counter = Counter("changes_total", "", "lane", "tenant")
    for number in range(1000):
        counter.inc(lane="live", tenant=str(number))
    assert counter.read()["changes_total{lane=live,tenant=other}"] == 900


def test_gauges_that_are_read_elsewhere_have_the_same_guard() -> None:
    gauge = Gauge("generation_info", "", "tenant")
    family = gauge.family_of({(str(number),): 1 for number in range(1000)})
    assert len(family.samples) == 101


def test_a_snapshot_adds_up_the_projects() -> None:
    """Heartbeats stay small when there are many projects."""
    counter = Counter("chunks_total", "", "model", "project")
    histogram = Histogram("seconds", "", "project", buckets=(1, 2))
    for project in ("a", "b"):
        counter.inc(2, model="m", project=project)
        histogram.observe(1.5, project=project)
    assert counter.read() == {"chunks_total{model=m}": 4}
    assert histogram.read() == {
        "seconds.count": 2,
        "seconds.sum": 3,
        "seconds.p50": 2,
        "seconds.p99": 2,
    }


def test_a_snapshot_is_json() -> None:
    """It has neither infinity nor NaN: such a heartbeat would be refused."""
    histogram = Histogram("seconds", "", buckets=(1, 2))
    assert histogram.read() == {}
    histogram.observe(1e9)
    assert histogram.read()["seconds.p99"] == 2
    json.dumps(histogram.read() | snapshot(), allow_nan=False)


def test_a_total_is_that_of_all_series() -> None:
    counter = Counter("chunks_total", "", "model")
    assert counter.total_in({"chunks_total{model=a}": 1, "chunks_total{model=b}": 2}) == 3
    assert counter.total_in({"chunks_total": 4, "chunks_total_more{model=a}": 2}) == 4
    assert counter.total_in({}) == 0


def test_a_gauge_that_was_never_set_is_absent() -> None:
    """Unknown is not 0."""
    gauge = Gauge("memory_bytes", "")
    assert list(gauge.families()) == []
    assert gauge.read() == {}
    gauge.set(0)
    assert [family.name for family in gauge.families()] == ["memory_bytes"]
    assert gauge.read() == {"memory_bytes": 0}


def test_a_duration_is_observed_also_if_the_work_fails() -> None:
    histogram = Histogram("seconds", "", "stage", buckets=(60,))
    with pytest.raises(KeyError), histogram.time(stage="cut"):
        raise KeyError
    assert histogram.read()["seconds{stage=cut}.count"] == 1


@pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_an_exposition_is_in_the_format_that_is_asked_for(accept: str, parse: object) -> None:
    counter = Counter("changes_total", "Changes.", "outcome")
    counter.inc(outcome='a"\\\n}')
    histogram = Histogram("seconds", "Duration.", "stage", buckets=(1, 2))
    histogram.observe(5, stage="cut")
    gauge = Gauge("worker_info", "Workers.", "role")
    gauge.set(1, role="indexer")
    content = exposition(
        [*counter.families(), *histogram.families(), *gauge.families()], accept
    ).decode()
    assert callable(parse)
    families = {family.name: family for family in parse(content)}
    [change] = families["changes"].samples
    assert (change.name, change.labels, change.value) == (
        "changes_total",
        {"outcome": 'a"\\\n}'},
        1,
    )
    buckets = {
        float(sample.labels["le"]): sample.value
        for sample in families["seconds"].samples
        if sample.name == "seconds_bucket"
    }
    assert buckets == {1: 0, 2: 0, math.inf: 1}
    assert families["worker_info"].samples[0].value == 1
    assert "_created" not in content
    assert content.endswith("# EOF\n") == bool(accept)
    assert content_type(accept).startswith(
        "application/openmetrics-text" if accept else "text/plain"
    )


def test_a_name_appears_once_in_an_exposition() -> None:
    gauge = Gauge("memory_bytes", "")
    gauge.set(1)
    read = gauge.family_of({(): 2})
    assert exposition([read, *gauge.families()]).decode().count("# TYPE") == 1
    assert b"memory_bytes 2.0" in exposition([read, *gauge.families()])


def test_a_process_has_no_metrics_of_another_kind() -> None:
    """A gateway archives nothing, so its scrape does not have 0 archived changes."""
    BUILD_INFO.set(1, version="1", revision="1", python="3")
    names = {scope: {family.name for family in own_families(scope)} for scope in Scope}
    assert "headrace_changes_archived" in names[Scope.WORKER]
    assert "headrace_changes_archived" not in names[Scope.GATEWAY]
    assert "headrace_build_info" in names[Scope.WORKER] & names[Scope.GATEWAY]


def test_names_have_the_prefix_and_a_base_unit() -> None:
    for name, (_, metric) in declared().items():
        assert re.fullmatch(r"headrace_[a-z_]+", name)
        assert name in WITHOUT_UNIT or any(name.endswith(unit) for unit in UNITS), name
        assert (metric.kind == "counter") == name.endswith("_total"), name
        assert metric.description.endswith("."), name


def test_no_label_can_name_a_document_a_question_or_a_key() -> None:
    """Each of their values would be a series."""
    labels = {label for _, metric in declared().values() for label in metric.labels}
    assert labels.isdisjoint({"uri", "query", "text", "key", "key_id", "event_id", "agent"})
