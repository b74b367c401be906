"""Traces of real processes: each change and each question is one, from the caller to the result."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
from aiohttp import ClientSession
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.cli import Cli, Command, environment_of
from tests.support.databases import Database
from tests.support.processes import WorkerProcess
from tests.support.s3 import free_port
from tests.support.traces import ReceivedSpan, TraceReceiver, receiver
from tests.support.waiting import eventually

TEXT = "Kingfishers nest in river banks"
PRODUCER, CONSUMER = 4, 5


@pytest.fixture
async def traces() -> AsyncIterator[TraceReceiver]:
    """Receiver of spans."""
    async with receiver() as received:
        yield received


@pytest.fixture
def cli(redis_url: str, database: Database, tmp_path: Path, traces: TraceReceiver) -> Cli:
    """Command line that sends its spans to the receiver."""
    environment = environment_of(redis_url, database, tmp_path / "home")
    return Cli(environment | traces.environment)


def event(uri: str, **data: str) -> str:
    change = {"project": "birds", "uri": uri, "content": f"{TEXT}. {uri}", **data}
    return json.dumps({"type": "document.changed", "data": change})


async def publish(cli: Cli, *events: str, lane: str = "live") -> list[str]:
    """Publish events by one command, and return their tokens."""
    result = await cli("publish", "--lane", lane, stdin="\n".join(events))
    assert result.code == 0, result
    return result.stdout.split()


def chain(spans: dict[str, ReceivedSpan], *names: str) -> bool:
    """True if each span is there and is the child of the one before."""
    return all(name in spans for name in names) and all(
        spans[child].parent_id == spans[parent].span_id for parent, child in pairwise(names)
    )


async def test_a_change_is_one_trace_until_it_is_searchable_by_vector(
    redis_url: str, database: Database, cli: Cli, traces: TraceReceiver
) -> None:
    """Changes that are handled together have a trace each, with links to the batch's stages."""
    tokens = await publish(cli, *(event(f"{number}.md") for number in range(3)), lane="bulk")
    lane = "document.changed.bulk"
    chunked = "document.chunked.bulk"
    async with WorkerProcess(redis_url, database, traces.environment):
        await eventually(
            lambda: len(traces.named(f"ack {chunked}")) == len(tokens),
            "the vectors of all changes are there",
            timeout=30,
        )
    created = traces.named(f"create {lane}")
    for change in created:
        spans = traces.trace(change.trace_id)
        process = spans[f"process {lane}"]
        assert chain(spans, change.name, process.name, f"process {chunked}", f"ack {chunked}"), (
            spans.keys()
        )
        assert (change.kind, process.kind) == (PRODUCER, CONSUMER)
        event_ids = {span.attributes["messaging.message.id"] for span in (change, process)}
        assert len(event_ids) == 1
        assert process.attributes["headrace.token"] in tokens
    processed = traces.named(f"process {lane}")
    assert len({span.trace_id for span in processed}) == len(tokens)
    [batch] = traces.named(f"batch {lane}")
    assert set(batch.links) == {span.ids for span in processed}
    assert all(batch.ids in span.links for span in processed)
    stages = {span.name for span in traces.spans if span.parent_id == batch.span_id}
    assert {"admit", "resolve", "cut", "write", "report"} <= stages
    assert any(span.name.startswith("embeddings ") for span in traces.spans)
    [published] = traces.named(f"publish {lane}")
    assert set(published.links) == {span.ids for span in created}
    assert not any(TEXT in span.text for span in traces.spans)
    assert {span.service for span in traces.spans} == {"headrace"}


async def test_a_change_is_sampled_once(
    redis_url: str, database: Database, cli: Cli, traces: TraceReceiver
) -> None:
    """The second stage follows the decision of the first: a trace is complete or absent."""
    changed, chunked = "document.changed.bulk", "document.chunked.bulk"
    half = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"}
    events = [event(f"{number}.md") for number in range(40)]

    def sampled(name: str) -> set[str]:
        return {span.trace_id for span in traces.named(name)}

    async with WorkerProcess(redis_url, database, traces.environment | half):
        published = await cli(
            "publish",
            "--lane",
            "bulk",
            "--vectors",
            stdin="\n".join(events),
            OTEL_SDK_DISABLED="true",
        )
        assert published.code == 0, published
        await eventually(
            lambda: sampled(f"process {changed}") == sampled(f"ack {chunked}") != set(),
            "the sampled traces are complete",
        )
    assert 0 < len(sampled(f"process {changed}")) < len(events)
    assert (
        sampled(f"process {changed}") == sampled(f"process {chunked}") == sampled(f"ack {chunked}")
    )
    assert all(span.parent_id for span in traces.named(f"process {chunked}"))


async def test_a_question_is_one_trace_until_its_reply(
    redis_url: str, database: Database, cli: Cli, traces: TraceReceiver
) -> None:
    """The trace has the search's stages, and no text of the question or of a result."""
    question = "where do kingfishers nest?"
    logs = {"HEADRACE_LOG_FORMAT": "json", "HEADRACE_LOG_LEVEL": "debug"}
    async with WorkerProcess(redis_url, database, traces.environment | logs) as worker:
        [token] = await publish(cli, event("river.md"))
        # without an overlay: in a linked work tree of git, a question may be asked twice
        options = ["--project", "birds", "--min-event", token, "--overlay", "", "--json"]
        answer = await cli("ask", *options, question)
        assert answer.code == 0, answer
        [asked] = traces.named("publish query.requested")
        await eventually(
            lambda: traces.named("process query.requested"), "the worker sent its spans"
        )
        [line] = [
            line
            for line in map(json.loads, filter(is_json, worker.log().splitlines()))
            if line["event"] == "document.indexed"
        ]
    spans = traces.trace(asked.trace_id)
    assert chain(
        spans,
        "publish query.requested",
        "process query.requested",
        "publish replies",
        "receive replies",
    )
    for stage in ("wait", "embed", "search", "fuse", "assemble"):
        assert chain(spans, "process query.requested", stage)
    assert chain(spans, "search", "vector")
    assert chain(spans, "search", "keyword")
    assert not any(question in span.text or TEXT in span.text for span in traces.spans)
    [published] = traces.named("create document.changed.live")
    assert line["trace_id"] == published.trace_id
    assert line["span_id"] in {span.span_id for span in traces.spans}


def is_json(line: str) -> bool:
    return line.startswith("{")


async def test_a_reclaimed_change_stays_in_its_trace(
    redis_url: str, database: Database, cli: Cli, traces: TraceReceiver
) -> None:
    """A killed worker loses only its own spans; the next attempt belongs to the same trace."""
    environment = traces.environment | {"HEADRACE_LEASE": "1"}
    [token] = await publish(cli, event("river.md"))
    settings = {**cli.environment, "HEADRACE_DATABASE_URL": database.worker_url, **environment}
    victim = await Command.start(
        "worker", environment=settings, strike=["indexing.committed", "1", "0", "9"]
    )
    assert (await victim.result(60)).code == -9
    lane = "document.changed.live"
    async with WorkerProcess(redis_url, database, environment):
        [processed] = await eventually(
            lambda: traces.named(f"process {lane}", headrace__token=token),
            "the change is processed",
            timeout=30,
        )
    [published] = traces.named(f"create {lane}")
    assert processed.attributes["headrace.attempt"] == 2
    assert (processed.trace_id, processed.parent_id) == published.ids
    assert processed.attributes["headrace.settlement"] == "acknowledged"


async def test_a_redriven_change_begins_a_trace_that_links_to_the_first(
    redis_url: str, database: Database, cli: Cli, traces: TraceReceiver
) -> None:
    """The link leads to the trace in which the change was refused."""
    lane = "document.changed.live"
    async with WorkerProcess(redis_url, database, traces.environment):
        await publish(cli, event("scan.pdf", kind="pdf"))
        [refused] = await eventually(lambda: traces.named(f"process {lane}"), "it is refused")
        assert (await cli("dead", "redrive", "--all")).code == 0
        await eventually(lambda: len(traces.named(f"process {lane}")) == 2, "it is redriven")
    redriven = traces.named(f"process {lane}")[1]
    [published] = traces.named(f"create {lane}")
    assert refused.trace_id == published.trace_id != redriven.trace_id
    assert (redriven.parent_id, redriven.links) == ("", (published.ids,))
    for span in (refused, redriven):
        assert span.failed
        assert span.attributes["headrace.settlement"] == "dead_lettered"
        assert span.attributes["headrace.token"] == refused.attributes["headrace.token"]


async def test_an_unreachable_collector_does_not_stop_a_command(cli: Cli) -> None:
    """The command does its work; the spans are lost."""
    result = await cli(
        "publish", stdin=event("river.md"), OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9"
    )
    assert result.code == 0
    assert result.stdout.startswith("live:0:")


async def test_a_scrape_names_the_traces_of_changes_and_questions(
    redis_url: str, database: Database, cli: Cli, traces: TraceReceiver
) -> None:
    """The exemplar of a freshness is the trace of its change, and not that of the whole batch."""
    port = free_port()
    lane = "document.changed.live"
    arguments = ("--metrics-port", str(port))
    async with WorkerProcess(redis_url, database, traces.environment, *arguments):
        tokens = await publish(cli, *(event(f"{number}.md") for number in range(3)))
        for token in tokens:
            asked = await cli("ask", "--project", "birds", "--min-event", token, TEXT)
            assert asked.code == 0, asked
        accepted = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with ClientSession(headers=accepted) as session:

            async def exemplars() -> list[set[str]]:
                async with session.get(f"http://127.0.0.1:{port}/metrics") as response:
                    content = await response.text()
                histograms = ("headrace_freshness_seconds", "headrace_question_seconds")
                traces_of = [exemplars_in(content, histogram) for histogram in histograms]
                return traces_of if all(traces_of) else []

            changes, questions = await eventually(exemplars, "both histograms have exemplars")
    assert changes <= {span.trace_id for span in traces.named(f"create {lane}")}
    assert questions <= {span.trace_id for span in traces.named("publish query.requested")}


def exemplars_in(content: str, histogram: str) -> set[str]:
    """Traces that the buckets of a histogram name."""
    families = text_string_to_metric_families(content)  # type: ignore[no-untyped-call]
    return {
        sample.exemplar.labels["trace_id"]
        for family in families
        for sample in family.samples
        if family.name == histogram and sample.exemplar is not None
    }
