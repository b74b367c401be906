"""All metrics of the process, declared only here and read by ``snapshot``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = [
    "ARCHIVE_FAILURES",
    "CHANGES_ARCHIVED",
    "CHANGES_NOT_ARCHIVED",
    "CHANGES_REPUBLISHED",
    "CHANGES_TRIMMED",
    "CHUNKS_EMBEDDED",
    "CIRCUIT",
    "CIRCUITS_OPENED",
    "DEAD_LETTERS",
    "DOCUMENTS",
    "FRESHNESS_SECONDS",
    "LOOP_LAG_SECONDS",
    "MEMORY_BYTES",
    "MODEL_REQUESTS",
    "MODEL_REQUESTS_WAITING",
    "MODEL_WAIT_SECONDS",
    "QUERIES",
    "QUERY_WAITS_REFUSED",
    "Counter",
    "Gauge",
    "Histogram",
    "snapshot",
]

_MAX_SERIES = 100
_SMALLEST = 1e-4
_BUCKETS_PER_DOUBLING = 4
_BUCKETS = 88  # up to about 400 seconds
_LabelValues = tuple[str, ...]


class Metric:
    """A named quantity, split by the values of its labels.

    After 100 different label values, further ones are counted together as ``other``, so that a
    label from hostile input can't fill the memory.
    """

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self.name = name
        self.description = description
        self.labels = labels

    def _series(self, values: Mapping[_LabelValues, Any], labels: dict[str, str]) -> _LabelValues:
        """Raise ValueError unless exactly the declared labels are given."""
        if labels.keys() != set(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {tuple(labels)}")
        series = tuple(labels[label] for label in self.labels)
        return series if series in values or len(values) < _MAX_SERIES else ("other",) * len(series)

    def _series_name(self, values: _LabelValues) -> str:
        """Format a series as ``name{label=value}``, as snapshots show it."""
        pairs = ",".join(f"{k}={v}" for k, v in zip(self.labels, values, strict=True))
        return f"{self.name}{{{pairs}}}" if pairs else self.name

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
        """Return the value of each series."""
        raise NotImplementedError


class Counter(Metric):
    """A value that only grows."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        super().__init__(name, description, *labels)
        self._values: dict[_LabelValues, float] = {}

    def inc(self, amount: float = 1, **labels: str) -> None:
        """Add ``amount``."""
        series = self._series(self._values, labels)
        self._values[series] = self._values.get(series, 0) + amount

    def read(self) -> dict[str, float]:
        """Return the total of each series."""
        return {self._series_name(series): value for series, value in self._values.items()}


class Gauge(Metric):
    """The current value of a quantity."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        super().__init__(name, description, *labels)
        self._values: dict[_LabelValues, float] = {}

    def set(self, value: float, **labels: str) -> None:
        """Set the value."""
        self._values[self._series(self._values, labels)] = value

    def read(self) -> dict[str, float]:
        """Return the value of each series."""
        return {self._series_name(series): value for series, value in self._values.items()}


class Histogram(Metric):
    """Distribution of a duration in seconds; quantiles are exact to about 19 %."""

    def __init__(self, name: str, description: str, *labels: str) -> None:
        super().__init__(name, description, *labels)
        self._counts: dict[_LabelValues, list[int]] = {}
        self._sums: dict[_LabelValues, float] = {}

    def observe(self, seconds: float, **labels: str) -> None:
        """Count one duration."""
        series = self._series(self._counts, labels)
        buckets = self._counts.setdefault(series, [0] * _BUCKETS)
        buckets[_bucket(seconds)] += 1
        self._sums[series] = self._sums.get(series, 0) + seconds

    def read(self) -> dict[str, float]:
        """Return count, sum, p50 and p99 of each series."""
        values: dict[str, float] = {}
        for series, buckets in self._counts.items():
            name = self._series_name(series)
            values[f"{name}.count"] = sum(buckets)
            values[f"{name}.sum"] = self._sums[series]
            values[f"{name}.p50"] = _quantile(buckets, 0.50)
            values[f"{name}.p99"] = _quantile(buckets, 0.99)
        return values


def _bucket(seconds: float) -> int:
    if seconds <= _SMALLEST:
        return 0
    return min(_BUCKETS - 1, math.ceil(math.log2(seconds / _SMALLEST) * _BUCKETS_PER_DOUBLING))


def _quantile(buckets: list[int], share: float) -> float:
    """Return the upper bound of the bucket that contains the quantile."""
    target = share * sum(buckets)
    cumulative = 0
    for index, count in enumerate(buckets):
        cumulative += count
        if cumulative >= target:
            return float(_SMALLEST * 2 ** (index / _BUCKETS_PER_DOUBLING))
    return math.nan


_declared: list[Metric] = []
M = TypeVar("M", bound=Metric)


def _declare(metric: M) -> M:
    _declared.append(metric)
    return metric


DOCUMENTS = _declare(Counter("documents", "Handled changes.", "outcome"))
CHUNKS_EMBEDDED = _declare(Counter("chunks_embedded", "Chunks sent to a model."))
FRESHNESS_SECONDS = _declare(Histogram("freshness_seconds", "Time until searchable by keyword."))
QUERIES = _declare(Counter("queries", "Replies to queries, by type.", "outcome"))
CHANGES_ARCHIVED = _declare(Counter("changes_archived", "Changes written to the archive."))
CHANGES_NOT_ARCHIVED = _declare(
    Counter("changes_not_archived", "Entries that the archiver skipped.", "reason")
)
CHANGES_REPUBLISHED = _declare(
    Counter("changes_republished", "Durable changes that were missing from Redis.")
)
CHANGES_TRIMMED = _declare(Counter("changes_trimmed", "Entries trimmed from the change streams."))
ARCHIVE_FAILURES = _declare(Counter("archive_failures", "Failed attempts to archive."))
DEAD_LETTERS = _declare(Counter("dead_letters", "Dead-lettered events.", "topic"))
QUERY_WAITS_REFUSED = _declare(
    Counter("query_waits_refused", "Queries answered as stale because too many were waiting.")
)
MODEL_REQUESTS = _declare(Counter("model_requests", "Requests to models.", "model", "outcome"))
CIRCUIT = _declare(
    Gauge("circuit", "State of the circuit: 0 closed, 0.5 half-open, 1 open.", "model")
)
CIRCUITS_OPENED = _declare(Counter("circuits_opened", "Times that a circuit opened.", "model"))
MODEL_REQUESTS_WAITING = _declare(
    Gauge("model_requests_waiting", "Requests that wait for the rate limiter.", "provider")
)
MODEL_WAIT_SECONDS = _declare(
    Histogram("model_wait_seconds", "Time spent waiting for the rate limiter.", "provider")
)
LOOP_LAG_SECONDS = _declare(Histogram("loop_lag_seconds", "Lag of the event loop."))
MEMORY_BYTES = _declare(Gauge("memory_bytes", "Resident memory of the worker itself."))


def snapshot() -> dict[str, float]:
    """Return every series with a value; histograms as ``.count``, ``.sum``, ``.p50``, ``.p99``."""
    return {name: value for metric in _declared for name, value in metric.read().items()}
