"""Warnings of status: one line for each problem, and none without a problem."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from events.heartbeats import Heartbeat
from events.names import Topic
from events.server.connection import MemoryUse
from events.streams.backlog import Backlog
from gateway.status.live_view import Rates, Update, line
from gateway.status.rows import Model, Provider, Snapshot, Worker
from gateway.status.snapshot import model_rows, worker_row
from gateway.status.warnings import alarms


def stream(topic: Topic = Topic.CHANGED_LIVE, **changed: Any) -> Backlog:
    return replace(Backlog(topic, 0, 0, 0, 0, None, 0), **changed)


def worker(**changed: Any) -> Worker:
    roles = ["answerer", "archiver", "embedder", "indexer"]
    state = {"host": "h", "pid": 1, "roles": roles, "version": "1"}
    beat = Heartbeat("h:1:a", timedelta(seconds=1), state)
    return replace(worker_row(beat), **changed)


def seen(**changed: Any) -> Snapshot:
    memory = MemoryUse(0, 0)
    return replace(Snapshot([stream()], memory, [worker()], [], []), **changed)


def test_nothing_is_said_where_all_is_well() -> None:
    """A system without problems has no warnings."""
    assert alarms(seen()) == []
    assert alarms(seen(workers=[])) == []


WAITS = stream(oldest_unacknowledged=timedelta(seconds=3))
CHUNKED = stream(Topic.CHUNKED_BULK, oldest_unacknowledged=timedelta(seconds=3))
ASKED = stream(Topic.QUERY, oldest_unacknowledged=timedelta(seconds=3))
FULL = MemoryUse(93, 100)
POSTPONED = "headrace_contexts_postponed_entries{{reason={}}}"
CIRCUIT = Model("m", 2, 1, 5, None, "status 500")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"memory": FULL}, "93%"),
        ({"memory": MemoryUse(97, 100)}, "changes and questions are refused"),
        ({"streams": [WAITS], "workers": []}, "--only indexer"),
        ({"streams": [WAITS], "workers": [worker(roles=["answerer"])]}, "--only indexer"),
        ({"streams": [CHUNKED], "workers": [worker(roles=["indexer"])]}, "--only embedder"),
        ({"streams": [ASKED], "workers": [worker(roles=["indexer"])]}, "--only answerer"),
        ({"streams": [stream(dead_letters=2)]}, "2 dead letters"),
        ({"workers": [worker(silent_s=12.0)]}, "silent for 12 s"),
        ({"workers": [worker(loop_lag_s=2.5)]}, "2.5 s"),
        ({"workers": [worker(), worker(version="2")]}, "several versions run: 1, 2"),
        ({"models": [CIRCUIT]}, "down for 1 of 2 workers: vectors wait"),
        ({"workers": [worker(metrics={POSTPONED.format("budget"): 3.0})]}, "3 documents go"),
        ({"workers": [worker(metrics={POSTPONED.format("price"): 1.0})]}, "price of the language"),
        ({"providers": [Provider("p", 9.0, 0, 0.0)]}, "9 s left"),
        ({"providers": [Provider("p", 0.0, 4, 0.0)]}, "4 requests wait"),
    ],
)
def test_each_trouble_is_one_line(changed: dict[str, Any], words: str) -> None:
    """Each problem causes exactly one warning."""
    [warning] = alarms(seen(**changed))
    assert words in warning


def test_a_silent_worker_does_no_work() -> None:
    """Work that only a silent worker does is reported as undone."""
    warnings = alarms(seen(streams=[WAITS], workers=[worker(silent_s=60.0)]))
    assert len(warnings) == 2


def test_changes_are_refused_before_questions() -> None:
    """Changes are refused before questions; without a memory limit nothing is refused."""
    shares = [0.5, 0.92, 0.97]
    uses = [MemoryUse(int(share * 1000), 1000) for share in shares]
    assert [one.refuses_changes for one in uses] == [False, True, True]
    assert [one.refuses_questions for one in uses] == [False, False, True]
    assert not MemoryUse(10**12, 0).refuses_changes


def test_a_model_is_reported_once_for_all_workers() -> None:
    """A model has one row for all workers, with the reason from a worker that it is down for."""
    closed = {"model": "m", "state": "closed", "failures": 1, "reason": "old", "next_probe_s": 0}
    down = {"model": "m", "state": "open", "failures": 5, "reason": "500", "next_probe_s": 2.5}
    beats = [
        Heartbeat(f"h:{n}", timedelta(), {"circuits": [circuit]})
        for n, circuit in enumerate([closed, down])
    ]
    [row] = model_rows(beats)
    assert (row.workers, row.down_in, row.reason) == (2, 1, "500")
    assert row.next_probe_s == 2.5


def test_a_worker_of_another_version_may_report_less() -> None:
    """Values missing from a heartbeat are shown as unknown."""
    row = worker_row(Heartbeat("h:1", timedelta(), {"pid": 7, "started_at": "soon"}))
    assert (row.worker, row.up_s, row.memory_bytes) == ("?:7", None, None)


def test_rates_are_those_of_all_workers_together() -> None:
    """Rates add up all workers; a restarted worker counts from 0, and the first rate is unknown."""
    rates, began = Rates(), datetime(2026, 1, 1, tzinfo=UTC)

    def look(at_seconds: int, **documents: float) -> dict[str, float | None]:
        rows = [
            worker(
                worker=name, metrics={"headrace_changes_total{outcome=indexed,lane=live}": count}
            )
            for name, count in documents.items()
        ]
        return rates.since_last(rows, began + timedelta(seconds=at_seconds))

    assert look(0, a=100) == {"changes_per_s": None, "questions_per_s": None}
    assert look(10, a=150, b=30)["changes_per_s"] == 8.0
    assert look(20, a=5, b=30)["changes_per_s"] == 0.0


def test_a_killed_worker_hides_no_successor_of_its_name() -> None:
    """Workers with the same host and process id, as in containers, have separate rates."""
    rates, began = Rates(), datetime(2026, 1, 1, tzinfo=UTC)
    shown: list[float | None] = []
    for seconds, count in enumerate([0, 20, 40]):
        rows = [
            worker(
                worker="h:1", metrics={"headrace_changes_total{outcome=indexed,lane=live}": done}
            )
            for done in (count, 500)
        ]
        at = began + timedelta(seconds=seconds)
        shown.append(rates.since_last(rows, at)["changes_per_s"])
    assert shown == [None, 20.0, 20.0]


def test_a_line_has_all_that_matters() -> None:
    """A line of the watch contains the main figures, and no control characters."""
    rates = {"changes_per_s": 1.5, "questions_per_s": None}
    streams = [stream(lag=3, oldest_unacknowledged=timedelta(seconds=2)), stream(lag=None)]
    shown = line(Update("now", seen(streams=streams, warnings=["red\x1b[31m"]), rates))
    assert shown.startswith("now lag unknown; pending 0; oldest 2.0 s; dead 0; workers 1; 1.5")
    assert "\x1b" not in shown
    assert "can't" in line(Update("now", unreachable="Redis can't be reached"))
