"""Export of traces by OTLP over HTTP, switched on by the standard variables ``OTEL_*`` alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version

import structlog

__all__ = ["exporting", "is_requested"]

log = structlog.get_logger(__name__)

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"
_FINAL_SEND = timedelta(seconds=3)
"""Longest time for which the end of a process waits for a collector that does not respond."""


def is_requested(environment: Mapping[str, str]) -> bool:
    """Return whether the variables of OpenTelemetry ask for an export by OTLP."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter:
        return "otlp" in exporter.split(",")
    return any(environment.get(name) for name in _ENDPOINTS)


@contextmanager
def exporting() -> Iterator[None]:
    """Export the spans of this process for the length of a block, if the variables ask for it.

    If that is impossible, the reason is logged in one line and the block runs all the same. At its
    end the last spans are sent, for at most 3 s.
    """
    if not is_requested(os.environ):
        yield
        return
    stop = _start(os.environ)
    try:
        yield
    finally:
        stop()


def _start(environment: Mapping[str, str]) -> Callable[[], None]:
    """Start the SDK, and return the function that ends it."""
    protocol = next((environment[name] for name in _PROTOCOLS if environment.get(name)), _PROTOCOL)
    if protocol != _PROTOCOL:
        return _refuse(f"OTLP over {protocol} is not supported", f"set {_PROTOCOLS[1]}={_PROTOCOL}")
    try:
        return _export(environment)
    except ModuleNotFoundError:
        return _refuse(
            "the SDK of OpenTelemetry is not installed",
            "pip install 'headrace[otel]', or unset the variables OTEL_*",
        )


def _refuse(reason: str, remedy: str) -> Callable[[], None]:
    log.error("traces.not_exported", reason=reason, remedy=remedy)
    return lambda: None


def _export(environment: Mapping[str, str]) -> Callable[[], None]:
    # slow imports, and from the extra `otel`
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    attributes = {"service.version": version("headrace")}
    if not _names_service(environment):
        attributes["service.name"] = "headrace"
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)

    def stop() -> None:
        # an exporter can't be interrupted while it waits for its collector
        sending = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(_FINAL_SEND.total_seconds())

    return stop


def _names_service(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("OTEL_SERVICE_NAME")) or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
