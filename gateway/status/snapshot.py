"""Snapshot of a deployment: streams, memory, workers, models, providers and warnings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis

from events.deployment import follow_stamp
from events.heartbeats import Heartbeat, Heartbeats
from events.names import Names
from events.rate_limits import read_held
from events.server.connection import read_memory
from events.streams.backlog import ARCHIVERS, read_backlog
from events.streams.trim import read_trimmed
from gateway.status import rows
from gateway.status.warnings import SILENT_SECONDS, alarms
from runtime.metrics import MODEL_REQUESTS_WAITING, MODEL_WAIT_SECONDS
from store.archive import Archive
from store.outbox import PostgresOutbox
from store.views.statistics import ProjectStatistics

__all__ = ["archive_rows", "archiver_rows", "model_rows", "read_snapshot", "worker_row"]


async def read_snapshot(redis: Redis, names: Names) -> rows.Snapshot:
    """Read the state of a deployment from Redis, in a few round trips.

    Raises:
        Unavailable: Redis can't be reached.
    """
    await follow_stamp(redis, names)
    beats = await Heartbeats(redis, names).read()
    alive = [beat for beat in beats if beat.age.total_seconds() <= SILENT_SECONDS]
    snapshot = rows.Snapshot(
        await read_backlog(redis, names),
        await read_memory(redis),
        [worker_row(beat) for beat in beats],
        model_rows(alive),
        await _read_providers(redis, names, alive),
    )
    return replace(snapshot, warnings=alarms(snapshot))


def worker_row(beat: Heartbeat) -> rows.Worker:
    """Row of ``status`` for one worker."""
    state = beat.state
    transport: Mapping[str, int] = state.get("transport") or {}
    return rows.Worker(
        worker=f"{state.get('host', '?')}:{state.get('pid', '?')}",
        roles=list(state.get("roles") or ()),
        version=str(state.get("version", "")),
        up_s=_up_seconds(state.get("started_at")),
        silent_s=round(beat.age.total_seconds(), 1),
        in_work=dict(state.get("in_work") or {}),
        in_flight=dict(state.get("in_flight") or {}),
        memory_bytes=state.get("memory_bytes"),
        loop_lag_s=float(state.get("loop_lag_s") or 0),
        done=transport.get("acknowledged", 0),
        retried=transport.get("retried", 0),
        taken_over=transport.get("reclaimed", 0),
        leases_lost=transport.get("leases_lost", 0),
        dead=transport.get("dead", 0),
        metrics=dict(state.get("metrics") or {}),
    )


def _up_seconds(started_at: object) -> float | None:
    """Uptime by this machine's clock and the worker's. It is None if the start is unknown."""
    try:
        began = datetime.fromisoformat(str(started_at))
        return max(0.0, round((datetime.now(UTC) - began).total_seconds(), 1))
    except (ValueError, TypeError):
        return None


_CLOSED = "closed"


def model_rows(beats: Sequence[Heartbeat]) -> list[rows.Model]:
    """Rows of ``status`` for all remote models that these workers use."""
    circuits: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for beat in beats:
        for circuit in beat.state.get("circuits") or ():
            circuits[str(circuit["model"])].append(circuit)
    return [_model(model, states) for model, states in sorted(circuits.items())]


def _model(model: str, circuits: Sequence[Mapping[str, Any]]) -> rows.Model:
    down = [circuit for circuit in circuits if circuit["state"] != _CLOSED]
    return rows.Model(
        model=model,
        workers=len(circuits),
        down_in=len(down),
        failures=sum(int(circuit["failures"]) for circuit in circuits),
        next_probe_s=min((float(row["next_probe_s"]) for row in down), default=None),
        reason=next((str(row["reason"]) for row in down if row["reason"]), ""),
    )


async def _read_providers(
    redis: Redis, names: Names, beats: Sequence[Heartbeat]
) -> list[rows.Provider]:
    waiting: defaultdict[str, float] = defaultdict(float)
    p99_s: defaultdict[str, float] = defaultdict(float)
    for beat in beats:
        metrics = beat.state.get("metrics") or {}
        for provider, requests in MODEL_REQUESTS_WAITING.values_in(metrics).items():
            waiting[provider] += requests
        for provider, seconds in MODEL_WAIT_SECONDS.values_in(metrics, "p99").items():
            p99_s[provider] = max(p99_s[provider], seconds)
    providers = sorted({*waiting, *p99_s})
    held_s = await read_held(redis, names, providers)
    return [
        rows.Provider(provider, held_s[provider], int(waiting[provider]), round(p99_s[provider], 3))
        for provider in providers
    ]


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
            "oldest_unarchived_s": rows.rounded_seconds(stream.oldest_unacknowledged),
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
    archives = []
    for project in projects:
        statistics = await archive.statistics(project.project)
        if statistics is None:
            continue
        beginning = statistics.beginning
        each = statistics.stored_bytes / project.documents if project.documents else None
        archives.append(
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
    return archives
