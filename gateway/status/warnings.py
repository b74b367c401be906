"""Warnings about the state of a deployment: one line each, with the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["SILENT_SECONDS", "alarms"]

SILENT_SECONDS = 10.0
"""A worker without a heartbeat for this long counts as silent; workers beat every two seconds."""

_LATE_SECONDS = 1.0
_READERS = {"document.changed": "indexer", "document.chunked": "embedder", "query": "answerer"}

Row = Mapping[str, Any]


def alarms(found: Row) -> list[str]:
    """Warnings about a result of ``look``, the worst first."""
    workers: Sequence[Row] = found["workers"]
    alive = [worker for worker in workers if worker["silent_s"] <= SILENT_SECONDS]
    return [
        *_memory(found["memory"]),
        *_nobody(found["streams"], alive),
        *_silent(workers),
        *_models(found["models"]),
        *_providers(found["providers"]),
        *_dead(found["streams"]),
        *_late(alive),
        *_versions(alive),
    ]


def _memory(memory: Row) -> Iterator[str]:
    if memory["refuses_questions"]:
        yield (
            f"Redis is at {memory['share']:.0%} of its memory limit, so changes and questions are "
            "refused; raise maxmemory"
        )
    elif memory["refuses_changes"]:
        yield (
            f"Redis is at {memory['share']:.0%} of its memory limit, so changes are refused; "
            "let the workers catch up, shorten HEADRACE_STREAM_RETENTION, or raise maxmemory"
        )


def _nobody(streams: Sequence[Row], alive: Sequence[Row]) -> Iterator[str]:
    for family, role in _READERS.items():
        waiting = [stream for stream in streams if stream["topic"].startswith(family)]
        waits = any(stream["oldest_unacknowledged_s"] is not None for stream in waiting)
        if waits and not any(role in worker["roles"] for worker in alive):
            yield f"events are waiting, but no {role} runs; start `headrace worker --only {role}`"


def _silent(workers: Sequence[Row]) -> Iterator[str]:
    for worker in workers:
        if worker["silent_s"] > SILENT_SECONDS:
            silence = f"{worker['silent_s']:.0f} s"
            yield f"worker {worker['worker']} has been silent for {silence}: it was killed or hangs"


def _models(models: Sequence[Row]) -> Iterator[str]:
    for model in models:
        if model["down_in"]:
            where = f"{model['down_in']} of {model['workers']} workers"
            yield (
                f"model {model['model']} is down for {where}: vectors wait, keyword search works: "
                f"{model['reason']}"
            )


def _providers(providers: Sequence[Row]) -> Iterator[str]:
    for provider in providers:
        if provider["held_s"]:
            left = f"{provider['held_s']:.0f} s left"
            yield f"requests to provider {provider['provider']} are paused: {left}"
        elif provider["waiting"]:
            waiting = f"{provider['waiting']:.0f} requests wait"
            yield f"{waiting} for the rate limit of provider {provider['provider']}"


def _dead(streams: Sequence[Row]) -> Iterator[str]:
    count = sum(stream["dead_letters"] for stream in streams)
    if count:
        yield f"{count} dead letters; run `headrace dead list`"


def _late(alive: Sequence[Row]) -> Iterator[str]:
    for worker in alive:
        if worker["loop_lag_s"] > _LATE_SECONDS:
            lag = f"{worker['loop_lag_s']:.1f} s"
            yield (
                f"worker {worker['worker']}: event loop was blocked for {lag}; "
                "the host may be short of CPU"
            )


def _versions(alive: Sequence[Row]) -> Iterator[str]:
    versions = sorted({str(worker["version"]) for worker in alive})
    if len(versions) > 1:
        yield f"workers of several versions run: {', '.join(versions)}"
