"""Counters, gauges and histograms with a bounded number of series, over prometheus_client."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from operator import add
from time import perf_counter
from typing import Generic, TypeVar

import prometheus_client
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector as Registry

from runtime import traces

__all__ = ["Counter", "Family", "Gauge", "Histogram", "Metric", "content_type", "exposition"]

# samples `_created` would double the number of series
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

_MOST_VALUES = 100
_OTHER = "other"
_PROJECT = "project"
_LabelValues = tuple[str, ...]
Collector = TypeVar(
    "Collector", prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram
)


class Metric(Generic[Collector]):
    """A named quantity, split by the values of its labels.

    After 100 different values of a label, further ones are counted together as ``other``, so that
    a label from hostile input can't fill the memory.
    """

    kind: str

    def __init__(
        self, collector: Collector, name: str, description: str, labels: Sequence[str]
    ) -> None:
        self.name = name
        self.description = description
        self.labels = tuple(labels)
        self._collector: Collector = collector
        self._label_set = frozenset(labels)
        self._values: tuple[set[str], ...] = tuple(set() for _ in labels)
        self._children: dict[_LabelValues, Collector] = {} if labels else {(): collector}
        self._series_names: dict[_LabelValues, str] = {}

    def families(self) -> Iterator[Family]:
        """Yield the series for an exposition; none if nothing was counted yet."""
        yield from (family for family in self._collector.collect() if family.samples)

    def values_in(self, values: Mapping[str, float], quantity: str = "") -> dict[str, float]:
        """Return the values of this metric in a snapshot, also of another process, by label.

        For metrics with at most one label; without one, the key is ''. ``quantity``: that of a
        histogram, such as ``p99``.
        """
        after = quantity and f".{quantity}"
        if not self.labels:
            name = self.name + after
            return {"": values[name]} if name in values else {}
        before, after = f"{self.name}{{{self.labels[0]}=", "}" + after
        return {
            series[len(before) : -len(after)]: value
            for series, value in values.items()
            if series.startswith(before) and series.endswith(after)
        }

    def read(self) -> dict[str, float]:
        """Return the value of each series; those of all projects together."""
        raise NotImplementedError

    def _child(self, labels: Mapping[str, str]) -> Collector:
        """Return the series of these labels.

        Raises:
            ValueError: the labels are not exactly the declared ones.
        """
        if labels.keys() != self._label_set:
            raise ValueError(f"{self.name} has the labels {self.labels}, not {tuple(labels)}")
        values = tuple([labels[label] for label in self.labels])
        child = self._children.get(values)
        return self._new_child(values) if child is None else child

    def _new_child(self, values: _LabelValues) -> Collector:
        admitted = tuple(map(_admit, self._values, values))
        if admitted not in self._children:
            self._children[admitted] = self._collector.labels(*admitted)
        return self._children[admitted]

    def _series(self) -> Iterator[tuple[str, Collector]]:
        """Yield each series with its name in snapshots, ``name{label=value}``.

        Heartbeats read every series every two seconds. ``collect`` of prometheus_client would make
        an object for each bucket, which takes ten times as long.
        """
        for values, child in list(self._children.items()):
            name = self._series_names.get(values)
            if name is None:
                name = self._series_names[values] = self._series_name(values)
            yield name, child

    def _series_name(self, values: _LabelValues) -> str:
        labelled = zip(self.labels, values, strict=True)
        pairs = ",".join(f"{label}={value}" for label, value in labelled if label != _PROJECT)
        return f"{self.name}{{{pairs}}}" if pairs else self.name


def _admit(admitted: set[str], value: str) -> str:
    if value not in admitted:
        if len(admitted) >= _MOST_VALUES:
            return _OTHER
        admitted.add(value)
    return value


class Counter(Metric[prometheus_client.Counter]):
    """A value that only grows."""

    kind = "counter"

    def __init__(self, name: str, description: str, *labels: str) -> None:
        collector = prometheus_client.Counter(name, description, labels, registry=None)
        super().__init__(collector, name, description, labels)

    def inc(self, amount: float = 1, **labels: str) -> None:
        """Add ``amount``."""
        self._child(labels).inc(amount)

    def total_in(self, values: Mapping[str, float]) -> float:
        """Return the total of all series in a snapshot, also of another process."""
        before = f"{self.name}{{"
        return sum(
            value
            for series, value in values.items()
            if series == self.name or series.startswith(before)
        )

    def read(self) -> dict[str, float]:
        """Return the total of each series; those of all projects together."""
        totals: defaultdict[str, float] = defaultdict(float)
        for series, child in self._series():
            totals[series] += child._value.get()
        return dict(totals)


class Gauge(Metric[prometheus_client.Gauge]):
    """The current value of a quantity."""

    kind = "gauge"

    def __init__(self, name: str, description: str, *labels: str) -> None:
        collector = prometheus_client.Gauge(name, description, labels, registry=None)
        super().__init__(collector, name, description, labels)
        self._is_set = False

    def set(self, value: float, **labels: str) -> None:
        """Set the value."""
        self._is_set = True
        self._child(labels).set(value)

    def inc(self, amount: float = 1, **labels: str) -> None:
        """Add ``amount``, which may be negative."""
        self._is_set = True
        self._child(labels).inc(amount)

    def families(self) -> Iterator[Family]:
        """Yield the series for an exposition; a value that was never set is absent, not 0."""
        if self._is_set:
            yield from super().families()

    def family_of(self, values: Mapping[_LabelValues, float]) -> Family:
        """Build a family with values that were read elsewhere, by the values of the labels."""
        family = GaugeMetricFamily(self.name, self.description, labels=self.labels)
        admitted: tuple[set[str], ...] = tuple(set() for _ in self.labels)
        series = {tuple(map(_admit, admitted, key)): value for key, value in values.items()}
        for key, value in series.items():
            family.add_metric(key, value)
        return family

    def read(self) -> dict[str, float]:
        """Return the value of each series."""
        if not self._is_set:
            return {}
        return {series: child._value.get() for series, child in self._series()}


class Histogram(Metric[prometheus_client.Histogram]):
    """Distribution of a quantity; quantiles are exact to the width of a bucket.

    Each bucket keeps the trace of its latest sampled value as its exemplar.

    Args:
        name: the metric's name, with its unit.
        description: the metric's meaning.
        labels: names of its labels.
        buckets: upper bounds, ascending.
    """

    kind = "histogram"

    def __init__(self, name: str, description: str, *labels: str, buckets: Sequence[float]) -> None:
        collector = prometheus_client.Histogram(
            name, description, labels, registry=None, buckets=buckets
        )
        super().__init__(collector, name, description, labels)
        self.buckets = tuple(buckets)
        self._read_counts: Mapping[str, Sequence[float]] = {}
        self._read_values: Mapping[str, float] = {}

    def observe(self, value: float, span: traces.Span | None = None, /, **labels: str) -> None:
        """Count one value, which belongs to the trace of ``span``; by default the current one."""
        exemplar = (traces.current() if span is None else span).exemplar
        self._child(labels).observe(value, exemplar)

    @contextmanager
    def time(self, **labels: str) -> Iterator[None]:
        """Observe the duration of the block in seconds, also if it fails."""
        began_at = perf_counter()
        try:
            yield
        finally:
            self.observe(perf_counter() - began_at, **labels)

    def read(self) -> dict[str, float]:
        """Return count, sum, p50 and p99 of each series; those of all projects together."""
        counts: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * (len(self.buckets) + 1))
        sums: defaultdict[str, float] = defaultdict(float)
        for series, child in self._series():
            counts[series] = list(map(add, counts[series], _counts(child)))
            sums[series] += child._sum.get()
        if counts != self._read_counts:  # an idle process reads the same ones again and again
            self._read_counts = counts
            self._read_values = self._values_of(counts, sums)
        return dict(self._read_values)

    def _values_of(
        self, counts: Mapping[str, Sequence[float]], sums: Mapping[str, float]
    ) -> dict[str, float]:
        values: dict[str, float] = {}
        for series, buckets in counts.items():
            if count := sum(buckets):
                values[f"{series}.count"] = count
                values[f"{series}.sum"] = sums[series]
                values[f"{series}.p50"] = self._quantile(buckets, 0.50 * count)
                values[f"{series}.p99"] = self._quantile(buckets, 0.99 * count)
        return values

    def _quantile(self, counts: Sequence[float], target: float) -> float:
        """Return the upper bound of the bucket that contains the quantile.

        Values above the last bound count as that bound: snapshots are sent as JSON, which has no
        infinity.
        """
        for bound, cumulative in zip(self.buckets, accumulate(counts), strict=False):
            if cumulative >= target:
                return bound
        return self.buckets[-1]


def _counts(histogram: prometheus_client.Histogram) -> list[float]:
    """Return the number of values in each bucket, the one above the last bound included."""
    return [bucket.get() for bucket in histogram._buckets]


class _Families(Registry):
    """Families in the form of a registry of prometheus_client."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def exposition(families: Iterable[Family], accept: str = "") -> bytes:
    """Return families as text, in the format that a scraper's ``Accept`` header asks for.

    That is OpenMetrics, or by default the text format 0.0.4 of Prometheus, which has no exemplars.
    Of two families with one name only the first is written, as a name may appear once.
    """
    by_name: dict[str, Family] = {}
    for family in families:
        by_name.setdefault(family.name, family)
    return choose_encoder(accept)[0](_Families(by_name.values()))


def content_type(accept: str = "") -> str:
    """Return the media type of ``exposition`` for the same ``Accept`` header."""
    return choose_encoder(accept)[1]
