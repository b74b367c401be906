"""Cost of telemetry with few changes: the collector and the scraper receive something."""

from __future__ import annotations

import sys
from time import perf_counter

import pytest

from bench import telemetry
from runtime.errors import ConfigurationError

PROTOCOL = "opentelemetry.proto.collector.trace.v1.trace_service_pb2"


async def test_the_cost_of_telemetry_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every trace sampled, each change has at least the spans of its two stages."""
    for name, value in {"ROUNDS": 1, "CHANGES": 10, "SAMPLED_SHARE": 1.0}.items():
        monkeypatch.setattr(telemetry, name, value)
    # a forked worker is no descendant of the process that starts it
    monkeypatch.setattr(telemetry, "cpu_s_below", lambda _pid: {"worker": perf_counter()})
    figures = await telemetry.telemetry_figures()
    assert figures["telemetry_ratio"] > 0
    assert figures["batch_ratio"] > 0
    assert figures["telemetry_cpu_ratio"] > 0
    assert figures["batch_cpu_ratio"] > 0
    assert figures["plain_changes_per_s"] > 0
    assert figures["telemetry_spans"] >= 2 * 2 * 10
    assert figures["telemetry_scrapes"] >= 1


async def test_without_the_extra_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that sends nothing would make the ratio too good."""
    monkeypatch.setitem(sys.modules, PROTOCOL, None)
    with pytest.raises(ConfigurationError) as refusal:
        await telemetry.telemetry_figures()
    assert "otel" in refusal.value.remedy
