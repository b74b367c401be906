from __future__ import annotations

import pytest

from runtime.metrics import Counter, Gauge, Histogram


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
    histogram = Histogram("answer_seconds", "")
    for _ in range(99):
        histogram.observe(seconds)
    histogram.observe(seconds * 100)
    values = histogram.read()
    assert seconds <= values["answer_seconds.p50"] <= seconds * 1.2
    assert values["answer_seconds.count"] == 100
    assert values["answer_seconds.p99"] <= seconds * 1.2


def test_histogram_takes_extremes() -> None:
    """Zero and very large values are counted."""
    histogram = Histogram("answer_seconds", "")
    histogram.observe(0)
    histogram.observe(1e9)
    assert histogram.read()["answer_seconds.count"] == 2


def test_values_are_read_from_the_snapshot_of_another_process() -> None:
    """Metrics whose names begin alike are kept apart."""
    waiting = Gauge("waiting", "", "provider")
    seconds = Histogram("waiting_seconds", "", "provider")
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
