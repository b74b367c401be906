"""Snapshot of a deployment: streams, memory, workers, models, providers and warnings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis

from events.heartbeats import Heartbeat, Heartbeats
from events.names import Names
from events.rate_limits import read_held
from events.server.memory import read_memory
from events.streams.backlog import ARCHIVERS, Backlog, read_backlog
from events.streams.trim import read_trimmed
from gateway.status.warnings import SILENT_SECONDS, alarms
from store.archive import Archive
from store.outbox import PostgresOutbox
from store.statistics import ProjectStatistics

__all__ = [
    "archive_rows",
    "archiver_rows",
    "look",
    "model_rows",
    "provider_rows",
    "stream_row",
    "worker_rows",
]


async def look(redis: Redis, names: Names) -> dict[str, Any]:
    """Read the state of a deployment from Redis, in a few round trips.

    Raises:
        Unavailable: Redis can't be reached.
    """
    memory = await read_memory(redis)
    backlog = await read_backlog(redis, names)
    beats = await Heartbeats(redis, names).read()
    alive = [beat for beat in beats if beat.age.total_seconds() <= SILENT_SECONDS]
    snapshot = {
        "streams": [stream_row(stream) for stream in backlog],
        "memory": {
            "used_bytes": memory.used_bytes,
            "limit_bytes": memory.limit_bytes or None,
            "share": round(memory.share, 3),
            "refuses_changes": memory.refuses_changes,
            "refuses_questions": memory.refuses_questions,
        },
        "workers": worker_rows(beats),
        "models": model_rows(alive),
        "providers": await provider_rows(redis, names, alive),
    }
    return snapshot | {"warnings": alarms(snapshot)}


def stream_row(backlog: Backlog) -> dict[str, Any]:
    """Row of ``status`` for one stream."""
    age = backlog.oldest_unacknowledged
    return {
        "topic": backlog.topic.value,
        "partition": backlog.partition,
        "lag": backlog.lag,
        "pending": backlog.pending,
        "oldest_unacknowledged_s": None if age is None else round(age.total_seconds(), 3),
        "dead_letters": backlog.dead_letters,
    }


_OF_PROVIDER = re.compile(r"(model_requests_waiting|model_wait_seconds)\{provider=([^}]*)\}(.*)")
_CLOSED = "closed"

Row = dict[str, Any]


def worker_rows(beats: Sequence[Heartbeat]) -> list[Row]:
    """Identity, in-flight events and counters of each worker.

    A worker of another version may report fewer fields; the others are None, 0 or ''.
    """
    return [_worker(beat) for beat in beats]


def _worker(beat: Heartbeat) -> Row:
    state = beat.state
    transport: Mapping[str, int] = state.get("transport") or {}
    return {
        "worker": f"{state.get('host', '?')}:{state.get('pid', '?')}",
        "roles": list(state.get("roles") or ()),
        "version": str(state.get("version", "")),
        "up_s": _up_seconds(state.get("started_at")),
        "silent_s": round(beat.age.total_seconds(), 1),
        "in_work": dict(state.get("in_work") or {}),
        "in_flight": dict(state.get("in_flight") or {}),
        "memory_bytes": state.get("memory_bytes"),
        "loop_lag_s": float(state.get("loop_lag_s") or 0),
        "done": transport.get("acknowledged", 0),
        "retried": transport.get("retried", 0),
        "taken_over": transport.get("reclaimed", 0),
        "leases_lost": transport.get("leases_lost", 0),
        "dead": transport.get("dead", 0),
        "metrics": dict(state.get("metrics") or {}),
    }


def _up_seconds(started_at: object) -> float | None:
    """Uptime by this machine's clock and the worker's. It is None if the start is unknown."""
    try:
        began = datetime.fromisoformat(str(started_at))
        return max(0.0, round((datetime.now(UTC) - began).total_seconds(), 1))
    except (ValueError, TypeError):
        return None


def model_rows(beats: Sequence[Heartbeat]) -> list[Row]:
    """For each remote model, the number of workers whose circuit is not closed, and the reason."""
    circuits: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for beat in beats:
        for circuit in beat.state.get("circuits") or ():
            circuits[str(circuit["model"])].append(circuit)
    return [_model(model, rows) for model, rows in sorted(circuits.items())]


def _model(model: str, rows: Sequence[Mapping[str, Any]]) -> Row:
    down = [row for row in rows if row["state"] != _CLOSED]
    return {
        "model": model,
        "workers": len(rows),
        "down_in": len(down),
        "failures": sum(int(row["failures"]) for row in rows),
        "next_probe_s": min((float(row["next_probe_s"]) for row in down), default=None),
        "reason": next((str(row["reason"]) for row in down if row["reason"]), ""),
    }


async def provider_rows(redis: Redis, names: Names, beats: Sequence[Heartbeat]) -> list[Row]:
    """For each provider, its pause, and the number and duration of waits for its rate limits.

    Raises:
        Unavailable: Redis can't be reached.
    """
    providers: defaultdict[str, dict[str, float]] = defaultdict(lambda: {"waiting": 0, "p99_s": 0})
    for beat in beats:
        for name, value in (beat.state.get("metrics") or {}).items():
            _add(providers, name, float(value))
    held = await read_held(redis, names, sorted(providers))
    return [
        {
            "provider": provider,
            "held_s": held[provider],
            "waiting": int(values["waiting"]),
            "turn_p99_s": round(values["p99_s"], 3),
        }
        for provider, values in sorted(providers.items())
    ]


def _add(found: Mapping[str, dict[str, float]], name: str, value: float) -> None:
    match = _OF_PROVIDER.fullmatch(name)
    if match is None:
        return
    metric, provider, part = match.groups()
    values = found[provider]
    if metric == "model_requests_waiting":
        values["waiting"] += value
    elif part == ".p99":
        values["p99_s"] = max(values["p99_s"], value)


async def archiver_rows(redis: Redis, names: Names) -> list[dict[str, Any]]:
    """Entries of each stream that wait for the archive, that Redis keeps, and that were trimmed.

    Raises:
        Unavailable: Redis can't be reached.
    """
    backlog = await read_backlog(redis, names, ARCHIVERS)
    trimmed = await read_trimmed(redis, names)
    return [
        {
            "topic": stream.topic.value,
            "partition": stream.partition,
            "lag": stream.lag,
            "pending": stream.pending,
            "oldest_unarchived_s": None
            if stream.oldest_unacknowledged is None
            else round(stream.oldest_unacknowledged.total_seconds(), 3),
            "kept": stream.length,
            "trimmed": trimmed[stream.topic.lane, stream.partition],
        }
        for stream in backlog
    ]


async def archive_rows(
    archive: Archive, outbox: PostgresOutbox, projects: Sequence[ProjectStatistics]
) -> list[dict[str, Any]]:
    """Contents and sizes of each project's archive, and the bytes that compaction freed.

    ``bytes_per_document`` divides the bytes of the archive's files by the number of documents in
    the index. It is None if there are no documents.

    Raises:
        Unavailable: Postgres can't be reached.
    """
    rows = []
    for project in projects:
        statistics = await archive.statistics(project.project)
        if statistics is None:
            continue
        beginning = statistics.beginning
        each = statistics.stored_bytes / project.documents if project.documents else None
        rows.append(
            {
                "project": project.project,
                "changes": statistics.events,
                "contents": statistics.contents,
                "files": statistics.files,
                "bytes": statistics.stored_bytes,
                "raw_bytes": statistics.raw_bytes,
                "bytes_per_document": None if each is None else round(each, 1),
                "freed_bytes": statistics.freed_bytes,
                "dropped_changes": statistics.dropped_events,
                "whole_from": None if beginning is None else beginning.at.isoformat(),
                "outbox": await outbox.count(project.project),
            }
        )
    return rows
