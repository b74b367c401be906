"""Scrape of a real worker beside that of the deployment: every panel and rule has its series."""

from __future__ import annotations

from pathlib import Path

from aiohttp import ClientSession
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from events.client.operator_client import OperatorClient
from events.models import DocumentChange
from events.names import Lane, Names, Topic
from events.server.connection import connect
from gateway.telemetry import DeploymentMetrics
from runtime import metrics
from tests.support.databases import Database
from tests.support.observability import alerts, panels, selectors_of
from tests.support.processes import WorkerProcess
from tests.support.s3 import free_port
from tests.support.waiting import eventually
from tests.support.writes import opened

NAMES = Names()
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
WITHOUT_SERIES = {
    "headrace_model_requests_total": "no remote model is used",
    "headrace_model_request_seconds_bucket": "no remote model is used",
    "headrace_model_turn_wait_seconds_bucket": "no remote model is used",
    "headrace_model_circuit_state": "no remote model is used",
    "headrace_contexts_written_total": "no language model writes contexts",
    "headrace_contexts_postponed_entries": "no language model writes contexts",
    "headrace_context_cost_usd_total": "no language model writes contexts",
    "headrace_redis_memory_limit_bytes": "this Redis has no limit",
}
OF_THE_GATEWAY = {
    name for name, (scope, _) in metrics.declared().items() if scope is metrics.Scope.GATEWAY
}

Series = set[tuple[str, frozenset[str]]]


def series_in(content: str) -> Series:
    """Name and labels of each sample of an exposition."""
    families = text_string_to_metric_families(content)  # type: ignore[no-untyped-call]
    return {
        (sample.name, frozenset(sample.labels)) for family in families for sample in family.samples
    }


async def use(redis_url: str) -> None:
    """Publish changes in both lanes and one that can't be read, ask, and judge an answer."""
    async with OperatorClient.connect(redis_url) as client:
        receipts = [
            await client.publish(
                DocumentChange(project="docs", uri=f"{lane}.md", content=f"Herons nest. {lane}"),
                lane,
            )
            for lane in Lane
        ]
        await client.wait(receipts, vectors=True)
        answer = await client.ask("docs", "herons")
        await client.judge("docs", answer.query_id, answer.results[0].chunk_id, "used")
        await client.ask("docs", "herons", mode="keyword")
    redis = connect(redis_url)
    try:
        await redis.xadd(NAMES.stream(Topic.CHANGED_LIVE), {"event": "nonsense"})
    finally:
        await redis.aclose()


async def test_every_panel_and_every_rule_has_its_series(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    port = free_port()
    environment = {"HEADRACE_HOME": str(tmp_path)}
    arguments = ("--metrics-port", str(port))
    redis = connect(redis_url)
    try:
        async with (
            WorkerProcess(redis_url, database, environment, *arguments),
            opened(database.operator_url) as postgres,
            ClientSession(headers={"Accept": OPENMETRICS}) as session,
        ):
            await use(redis_url)
            deployment = DeploymentMetrics(redis, NAMES, postgres)

            async def scrape() -> Series:
                async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                    assert response.content_type == "application/openmetrics-text"
                    worker = series_in(await response.text())
                whole = metrics.exposition(await deployment.families(), OPENMETRICS)
                return worker | series_in(whole.decode())

            async def complete() -> bool:
                return missing_in(await scrape()) == []

            try:
                await eventually(complete, "every panel has a series")
            except AssertionError as error:
                raise AssertionError(missing_in(await scrape())) from error
    finally:
        await redis.aclose()


def missing_in(scraped: Series) -> list[str]:
    """Series of panels and rules that a scrape lacks."""
    expressions = [expression for panel in panels() for expression in panel.expressions]
    expressions += [alert.expression for alert in alerts()]
    return [
        f"{selector.name} {sorted(selector.labels)}"
        for expression in expressions
        for selector in selectors_of(expression)
        if not any(selector.name == name and selector.labels <= labels for name, labels in scraped)
        and selector.name not in WITHOUT_SERIES
        and selector.name.removesuffix("_bucket") not in OF_THE_GATEWAY
    ]
