"""Cost of telemetry and of batch ids, on many small changes with vectors from hashing.

``telemetry_ratio``: changes per second with a scrape every 5 s and 1 % of the traces sent to a
collector, divided by those without. ``batch_ratio``: changes per second that have a ``batch``,
divided by those without. Two deployments, one of them with telemetry, take turns, each with and
without batches. So every round gives each ratio twice, and the figure is the median. Rounds are
short, because other work on the machine then changes both runs of a pair alike.

``telemetry_cpu_ratio`` and ``batch_cpu_ratio``: processor time of the workers in all runs without,
divided by that in all runs with.
"""

from __future__ import annotations

import asyncio
import statistics
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from time import perf_counter
from typing import NamedTuple

from aiohttp import ClientSession, web

from bench.documents import notes
from bench.processes import cpu_s_below
from bench.stack import bench_stack, free_port, served
from events.client.client import Client
from events.models import DocumentChanged
from events.names import Lane
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.child_process import ChildProcess
from runtime.errors import ConfigurationError
from runtime.metrics_server import METRICS_PATH

__all__ = ["telemetry_figures"]

ROUNDS = 16
CHANGES = 1_000
SCRAPE_SECONDS = 5.0
SAMPLED_SHARE = 0.01

_PATIENCE = timedelta(minutes=5)
_OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
_TRACES_PATH = "/v1/traces"


class _Deployment(NamedTuple):
    """A client of a deployment, and its worker."""

    client: Client
    worker: ChildProcess


class _Pace(NamedTuple):
    """Changes per second of one run, and the processor seconds of the worker."""

    changes_per_s: float
    cpu_s: float


class _Case(NamedTuple):
    """One way to index: with telemetry or not, and with a batch or not."""

    has_telemetry: bool
    has_batch: bool


_PLAIN = _Case(has_telemetry=False, has_batch=False)
_BATCH = _Case(has_telemetry=False, has_batch=True)
_OBSERVED = _Case(has_telemetry=True, has_batch=False)
_OBSERVED_BATCH = _Case(has_telemetry=True, has_batch=True)
_CASES = (_PLAIN, _BATCH, _OBSERVED, _OBSERVED_BATCH)
_Paces = Mapping[_Case, Sequence[_Pace]]
_Pairs = Sequence[tuple[_Case, _Case]]


@dataclass
class _Monitoring:
    """Collector of traces and scraper of metrics, with counts of what they received.

    A worker serves its metrics at ``metrics_port`` of the loopback interface.
    """

    traces_url: str = ""
    metrics_port: int = field(default_factory=free_port)
    spans: int = 0
    scrapes: int = 0

    @asynccontextmanager
    async def scraping(self) -> AsyncIterator[None]:
        """Scrape at once and then every 5 s, for the duration of the context."""
        url = f"http://127.0.0.1:{self.metrics_port}{METRICS_PATH}"
        async with ClientSession(headers=_OPENMETRICS, raise_for_status=True) as session:
            task = asyncio.create_task(self._scrape(session, url))
            try:
                yield
            finally:
                task.cancel()
                [outcome] = await asyncio.gather(task, return_exceptions=True)
        if isinstance(outcome, Exception):
            raise outcome

    async def _scrape(self, session: ClientSession, url: str) -> None:
        while True:
            async with session.get(url) as response:
                await response.read()
            self.scrapes += 1
            await asyncio.sleep(SCRAPE_SECONDS)


async def telemetry_figures() -> dict[str, float]:
    """Measure both ratios; every other round runs in the opposite order.

    Raises:
        ConfigurationError: the extra ``otel`` is not installed.
    """
    paces: defaultdict[_Case, list[_Pace]] = defaultdict(list)
    async with (
        _monitoring() as monitoring,
        _deployment(OTEL_SDK_DISABLED="true") as plain,
        _observed_deployment(monitoring) as observed,
        monitoring.scraping(),
    ):
        for number in range(ROUNDS):
            for case in _CASES if number % 2 == 0 else reversed(_CASES):
                deployment = observed if case.has_telemetry else plain
                pace = await _pace(deployment, number, has_batch=case.has_batch)
                paces[case].append(pace)
    telemetry = ((_OBSERVED, _PLAIN), (_OBSERVED_BATCH, _BATCH))
    batches = ((_BATCH, _PLAIN), (_OBSERVED_BATCH, _OBSERVED))
    return {
        "telemetry_ratio": _median_ratio(paces, telemetry),
        "telemetry_cpu_ratio": _cpu_ratio(paces, telemetry),
        "batch_ratio": _median_ratio(paces, batches),
        "batch_cpu_ratio": _cpu_ratio(paces, batches),
        "plain_changes_per_s": round(
            statistics.median(pace.changes_per_s for pace in paces[_PLAIN]), 1
        ),
        "telemetry_spans": monitoring.spans,
        "telemetry_scrapes": monitoring.scrapes,
    }


def _median_ratio(paces: _Paces, pairs: _Pairs) -> float:
    """Return the median of the ratios of changes per second in the same round."""
    ratios = [
        pace.changes_per_s / base.changes_per_s
        for case, reference in pairs
        for pace, base in zip(paces[case], paces[reference], strict=True)
    ]
    return round(statistics.median(ratios), 3)


def _cpu_ratio(paces: _Paces, pairs: _Pairs) -> float:
    """Return the processor time of all references, divided by that of all cases."""
    case_s = sum(pace.cpu_s for case, _ in pairs for pace in paces[case])
    reference_s = sum(pace.cpu_s for _, reference in pairs for pace in paces[reference])
    return round(reference_s / case_s, 3)


async def _pace(deployment: _Deployment, number: int, *, has_batch: bool) -> _Pace:
    """Index new notes in a new project, and measure until their last vector."""
    client = deployment.client
    project = f"round-{number}-batch" if has_batch else f"round-{number}"
    first, *changes = notes(project, CHANGES + 1, seed=number)
    if has_batch:
        changes = [DocumentChanged(data=change.data, batch=project) for change in changes]
    await client.wait([await client.publish(first)], _PATIENCE, vectors=True)
    began, cpu_s = perf_counter(), _cpu_s(deployment.worker)
    receipts = await client.publish_many(changes, Lane.BULK)
    async for _ in client.outcomes(receipts, _PATIENCE, vectors=True):
        pass
    seconds = perf_counter() - began
    return _Pace(len(changes) / seconds, _cpu_s(deployment.worker) - cpu_s)


def _cpu_s(worker: ChildProcess) -> float:
    return sum(cpu_s_below(worker.pid).values())


@asynccontextmanager
async def _deployment(*arguments: str, **environment: str) -> AsyncIterator[_Deployment]:
    """Run servers and a worker of their own; provides the worker and a client."""
    async with (
        bench_stack() as stack,
        stack.worker(*arguments, HEADRACE_MODEL=HASHING_MODEL, **environment) as worker,
        Client.connect(stack.redis_url) as client,
    ):
        yield _Deployment(client, worker)


@asynccontextmanager
async def _observed_deployment(monitoring: _Monitoring) -> AsyncIterator[_Deployment]:
    """Run a deployment that sends a share of its traces; its worker serves its metrics."""
    async with _deployment(
        *("--metrics-port", str(monitoring.metrics_port)),
        OTEL_SDK_DISABLED="false",
        OTEL_TRACES_EXPORTER="otlp",
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf",
        OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{monitoring.traces_url}{_TRACES_PATH}",
        OTEL_TRACES_SAMPLER="parentbased_traceidratio",
        OTEL_TRACES_SAMPLER_ARG=str(SAMPLED_SHARE),
    ) as deployment:
        yield deployment


@asynccontextmanager
async def _monitoring() -> AsyncIterator[_Monitoring]:
    """Run a collector that counts spans and keeps none."""
    try:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (  # noqa: PLC0415
            ExportTraceServiceRequest,
        )
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            "the SDK of OpenTelemetry is not installed, so telemetry can't be measured",
            "pip install 'headrace[otel]'",
        ) from error

    async def receive(request: web.Request) -> web.Response:
        message = ExportTraceServiceRequest.FromString(await request.read())
        monitoring.spans += sum(
            len(scope.spans)
            for resource in message.resource_spans
            for scope in resource.scope_spans
        )
        return web.Response(content_type="application/x-protobuf")

    monitoring = _Monitoring()
    application = web.Application(client_max_size=64 * 2**20)
    application.router.add_post(_TRACES_PATH, receive)
    async with served(application) as monitoring.traces_url:
        yield monitoring
