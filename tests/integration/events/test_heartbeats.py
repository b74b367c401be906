"""Heartbeats of workers."""

from __future__ import annotations

import json
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from events.heartbeats import FORGET_AFTER, Heartbeat, Heartbeats
from events.names import Names
from gateway.status.snapshot import read_snapshot
from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.databases import Database
from tests.support.running import headrace
from tests.support.waiting import eventually

NAMES = Names()
NONSENSE = (
    b"nonsense",
    b"\xff",
    b"[]",
    b'{"at_ms": 0, "state": 1}',
    b'{"at_ms": -1e300, "state": {}}',
    b'{"at_ms": Infinity, "state": {}}',
    b"[" * 100_000,
    b'{"at_ms": 9e12, "state": {"in_work": 7}}',
    b'{"at_ms": 9e12, "state": {"loop_lag_s": NaN}}',
    b'{"at_ms": 9e12, "state": {"circuits": [{}]}}',
    b'{"at_ms": 9e12, "state": {"metrics": {"m": "x"}, "memory_bytes": "y"}}',
)


async def test_a_worker_reports_its_state(redis_url: str, redis: Redis, database: Database) -> None:
    """A heartbeat has what ``status`` shows, and disappears when the worker ends."""
    heartbeats = Heartbeats(redis, NAMES)
    async with headrace(redis_url, database, model=HASHING_MODEL) as worker:
        await worker.change("a.md", "Text.")

        async def reported() -> list[Heartbeat]:
            beats = await heartbeats.read()
            return [
                one
                for one in beats
                if one.state["transport"].get("acknowledged")
                and not any(one.state["in_flight"].values())
            ]

        [beat] = await eventually(reported, "a heartbeat after the change")
        assert beat.age < timedelta(seconds=5)
        state = beat.state
        assert state["roles"] == ["answerer", "archiver", "embedder", "indexer"]
        assert state["memory_bytes"] > 2**20
        assert state["in_flight"]["document.changed.live"] == 0
        assert state["circuits"] == []
        assert any(name.startswith("headrace_changes_total{") for name in state["metrics"])
    assert not await heartbeats.read()


async def test_a_worker_continues_without_heartbeats(
    redis_url: str, redis: Redis, database: Database
) -> None:
    """A worker continues to work if its heartbeats can't be written."""
    await redis.set(NAMES.workers, "no hash")
    async with headrace(redis_url, database, model=HASHING_MODEL) as worker:
        await worker.change("a.md", "Text.")
        with capture_logs() as logs:
            await eventually(
                lambda: any(line["event"] == "heartbeat.failed" for line in logs), "a failed beat"
            )
        await worker.change("b.md", "Text.")


async def test_a_beat_has_the_time_that_redis_gave_the_last_one(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time since then is added; the next beat follows the clock of Redis again."""
    heartbeats, passed_s = Heartbeats(redis, NAMES), 0.0
    monkeypatch.setattr("events.heartbeats.monotonic", lambda: monotonic() + passed_s)

    async def beaten_at() -> int:
        await heartbeats.beat("h:1", {"host": "h"})
        stored: Any = await redis.hget(NAMES.workers, "h:1")
        return int(json.loads(stored)["at_ms"])

    first = await beaten_at()
    passed_s = 3_600.0
    assert await beaten_at() - first >= 3_600_000
    assert await beaten_at() - first < 3_600_000


async def test_a_killed_worker_reports_no_model(redis: Redis) -> None:
    """A killed worker is listed with a warning, but no longer its models and providers."""
    circuit = {"model": "m", "state": "open", "failures": 5, "reason": "500", "next_probe_s": 1}
    waiting = {"headrace_model_requests_waiting{provider=p}": 3}
    heartbeats = Heartbeats(redis, NAMES)
    await heartbeats.beat("h:1", {"host": "h", "circuits": [circuit], "metrics": waiting})
    found = await read_snapshot(redis, NAMES)
    assert [row.down_in for row in found.models] == [1]
    assert [row.waiting for row in found.providers] == [3]

    reported = json.loads(await redis.hget(NAMES.workers, "h:1") or "")
    long_ago = reported | {"at_ms": reported["at_ms"] - 20_000}
    await redis.hset(NAMES.workers, "h:1", json.dumps(long_ago))
    found = await read_snapshot(redis, NAMES)
    assert (found.models, found.providers) == ([], [])
    assert len(found.workers) == 1
    [warning] = found.warnings
    assert "has been silent" in warning


async def test_what_a_killed_worker_left_is_forgotten_at_last(
    redis: Redis, monkeypatch: Any
) -> None:
    """A killed worker is listed for a while, then removed; malformed heartbeats are skipped."""
    heartbeats = Heartbeats(redis, NAMES)
    await heartbeats.beat("host:1", {"roles": []})
    for number, nonsense in enumerate(NONSENSE):
        await redis.hset(NAMES.workers, f"nonsense:{number}", nonsense)
    await redis.hset(NAMES.workers, b"\xff", b'{"at_ms": 0, "state": {}}')
    [killed] = await heartbeats.read()
    assert killed.worker == "host:1"
    await heartbeats.forget()
    assert await heartbeats.read()
    now_ms = heartbeats._now_ms

    async def later() -> int:
        return await now_ms() + int(FORGET_AFTER.total_seconds() * 1000) + 1000

    monkeypatch.setattr(heartbeats, "_now_ms", later)
    await heartbeats.forget()
    assert not await heartbeats.read()
