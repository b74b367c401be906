"""Metrics of the deployment: read from real servers, absent if they can't be read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis

from events.heartbeats import Heartbeats
from events.names import Names, Topic
from events.server.acl import Role
from events.server.connection import connect
from gateway.telemetry import DeploymentMetrics, declare_build, deployment_metrics
from runtime import metrics
from store.postgres.pool import Database
from tests.support.crashable_redis import CrashableRedis
from tests.support.databases import Database as FreshDatabase
from tests.support.doors import open_doors
from tests.support.running import headrace
from tests.support.waiting import eventually

NAMES = Names()
LIVE = NAMES.stream(Topic.CHANGED_LIVE)
LIVE_STREAM = ("0", Topic.CHANGED_LIVE.value)
AT_ONCE = timedelta()
NOWHERE = "redis://127.0.0.1:1/0"

Series = dict[tuple[str, ...], float]


async def scraped(deployment: DeploymentMetrics) -> dict[str, Series]:
    """Values by metric and by the values of its labels, in the order of the labels' names."""
    return values_in(metrics.exposition(await deployment.families()))


def values_in(exposition: bytes) -> dict[str, Series]:
    values: dict[str, Series] = {}
    for family in text_string_to_metric_families(exposition.decode()):
        for sample in family.samples:
            key = tuple(sample.labels[label] for label in sorted(sample.labels))
            values.setdefault(sample.name, {})[key] = sample.value
    return values


@pytest.fixture
async def closed() -> AsyncIterator[Redis]:
    """Client of a server that does not run."""
    client = connect(NOWHERE)
    yield client
    await client.aclose()


async def test_a_scrape_describes_the_deployment(
    redis_url: str, redis: Redis, database: FreshDatabase, worker: Database
) -> None:
    deployment = DeploymentMetrics(redis, NAMES, worker, AT_ONCE)
    async with headrace(redis_url, database) as running:
        await running.change("a.md", "Herons nest in March.")
        await redis.xadd(LIVE, {"event": "nonsense"})

        async def complete() -> dict[str, Series]:
            values = await scraped(deployment)
            letters = values["headrace_dead_letter_entries"][LIVE_STREAM]
            beats = "headrace_worker_info" in values
            archived = values.get("headrace_archive_waiting_entries", {}).get(LIVE_STREAM) == 0
            settled = values["headrace_stream_pending_entries"].get(LIVE_STREAM) == 0
            return values if letters and beats and archived and settled else {}

        values = await eventually(complete, "the letter, the worker and the archive are seen")

    assert values["headrace_stream_length_entries"][LIVE_STREAM] == 2
    assert values["headrace_stream_lag_entries"][LIVE_STREAM] == 0
    assert values["headrace_stream_pending_entries"][LIVE_STREAM] == 0
    assert values["headrace_stream_oldest_unacknowledged_seconds"][LIVE_STREAM] == 0
    assert values["headrace_archive_oldest_unarchived_seconds"][LIVE_STREAM] == 0
    assert values["headrace_redis_memory_bytes"][()] > 2**20
    assert {role for role, *_ in values["headrace_worker_info"]} == {
        *("answerer", "archiver", "embedder", "indexer"),
    }
    assert all(size > 2**20 for size in values["headrace_worker_memory_bytes"].values())
    assert values["headrace_worker_loop_lag_seconds"]
    [(_, project, state)] = values["headrace_generation_info"]
    assert (project, state) == ("docs", "live")


async def test_waiting_entries_have_an_age(redis: Redis) -> None:
    """Entries wait although no worker runs: their number and age say so."""
    deployment = DeploymentMetrics(redis, NAMES, None, AT_ONCE)
    await redis.xgroup_create(LIVE, "indexer", id="0", mkstream=True)
    await redis.xadd(LIVE, {"event": "{}"}, id="1-1")
    values = await scraped(deployment)
    assert values["headrace_stream_oldest_unacknowledged_seconds"][LIVE_STREAM] > 1e9
    assert "headrace_worker_info" not in values
    assert "headrace_generation_info" not in values


async def test_what_is_unknown_is_absent(redis: Redis, closed: Redis) -> None:
    """A server that is down has no metrics, and those of the process are still there."""
    declare_build()
    values = values_in(await deployment_metrics(DeploymentMetrics(closed, NAMES, None, AT_ONCE)))
    assert "headrace_build_info" in values
    assert not [name for name in values if name.startswith(("headrace_stream", "headrace_redis"))]

    # a stream whose group does not exist yet: Redis can't count its lag
    await redis.xadd(LIVE, {"event": "{}"})
    values = await scraped(DeploymentMetrics(redis, NAMES, None, AT_ONCE))
    assert LIVE_STREAM not in values["headrace_stream_lag_entries"]
    assert values["headrace_stream_length_entries"][LIVE_STREAM] == 1
    assert "headrace_redis_memory_limit_bytes" not in values


async def test_a_role_that_may_not_read_a_stream_has_no_metrics_of_it(
    own_redis: CrashableRedis,
) -> None:
    """A publisher sees neither questions nor dead letters, so their numbers are not 0."""
    doors = await open_doors(own_redis.url)
    publisher = connect(doors.url(Role.PUBLISHER))
    try:
        values = await scraped(DeploymentMetrics(publisher, NAMES, None, AT_ONCE))
    finally:
        await publisher.aclose()
    topics = {topic for _, topic in values.get("headrace_stream_lag_entries", {})}
    assert "query.requested" not in topics
    assert "headrace_dead_letter_entries" not in values
    assert "headrace_redis_memory_bytes" in values


async def test_a_worker_without_a_value_has_no_series(redis: Redis) -> None:
    """A worker of another version may report less."""
    circuit = {"model": "m", "failures": 5, "reason": "500", "next_probe_s": 1}
    heartbeats = Heartbeats(redis, NAMES)
    await heartbeats.beat("a", {"host": "h", "pid": 1, "roles": ["indexer"], "version": "1"})
    for worker, state in ("b", "open"), ("c", "closed"), ("d", "unheard-of"):
        await heartbeats.beat(worker, {"circuits": [{**circuit, "state": state}]})
    values = await scraped(DeploymentMetrics(redis, NAMES, None, AT_ONCE))
    assert values["headrace_worker_info"] == {("indexer", "1", "h:1"): 1}
    assert "headrace_worker_memory_bytes" not in values
    assert "headrace_worker_loop_lag_seconds" not in values
    assert values["headrace_model_circuit_state"] == {("m",): 1}


async def test_scrapes_within_five_seconds_share_a_reading(redis: Redis) -> None:
    deployment = DeploymentMetrics(redis, NAMES)
    first = await deployment.families()
    await redis.xadd(LIVE, {"event": "{}"})
    assert await deployment.families() is first
    assert await DeploymentMetrics(redis, NAMES, None, AT_ONCE).families() != first
