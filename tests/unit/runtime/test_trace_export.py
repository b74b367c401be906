from __future__ import annotations

import sys

import pytest
from opentelemetry import trace
from structlog.testing import capture_logs

from runtime.trace_export import exporting, is_requested

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "worker"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
    ],
)
def test_the_standard_variables_switch_the_export_on(
    environment: dict[str, str], *, expected: bool
) -> None:
    """An endpoint or the exporter's name is enough, and either can be switched off."""
    assert is_requested(environment) is expected


def use(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def test_a_missing_sdk_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line names the extra to install, and the command runs without traces."""
    use(monkeypatch, ENDPOINT)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with capture_logs() as lines, exporting():
        assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    [line] = lines
    assert line["event"] == "traces.not_exported"
    assert "headrace[otel]" in line["remedy"]


def test_another_protocol_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only OTLP over HTTP is supported; a collector for gRPC has another port."""
    use(monkeypatch, {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    with capture_logs() as lines, exporting():
        pass
    [line] = lines
    assert "grpc" in line["reason"]
    assert "http/protobuf" in line["remedy"]
