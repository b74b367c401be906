"""What in a look at the deployment needs a person: one line each, that names the cure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["SILENT_SECONDS", "alarms"]

SILENT_SECONDS = 10.0
"""Workers beat every two seconds."""

_LATE_SECONDS = 1.0
_READERS = {"document.changed": "indexer", "document.chunked": "embedder", "query": "answerer"}

Row = Mapping[str, Any]


def alarms(found: Row) -> list[str]:
    """Warnings about what ``look`` has found, the worst first."""
    workers: Sequence[Row] = found["workers"]
    alive = [one for one in workers if one["silent_s"] <= SILENT_SECONDS]
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
            f"Redis is at {memory['share']:.0%} of its memory: changes and questions are refused; "
            "raise maxmemory"
        )
    elif memory["refuses_changes"]:
        yield (
            f"Redis is at {memory['share']:.0%} of its memory: changes are refused; "
            "let the workers catch up, shorten HEADRACE_STREAM_RETENTION, or raise maxmemory"
        )


def _nobody(streams: Sequence[Row], alive: Sequence[Row]) -> Iterator[str]:
    for family, role in _READERS.items():
        waiting = [one for one in streams if one["topic"].startswith(family)]
        waits = any(one["oldest_unacknowledged_s"] is not None for one in waiting)
        if waits and not any(role in one["roles"] for one in alive):
            yield f"events wait and no {role} runs: start `headrace worker --only {role}`"


def _silent(workers: Sequence[Row]) -> Iterator[str]:
    for one in workers:
        if one["silent_s"] > SILENT_SECONDS:
            silence = f"{one['silent_s']:.0f} s"
            yield f"worker {one['worker']} is silent for {silence}: it was killed, or hangs"


def _models(models: Sequence[Row]) -> Iterator[str]:
    for one in models:
        if one["down_in"]:
            where = f"{one['down_in']} of {one['workers']} workers"
            yield (
                f"model {one['model']} is down for {where}: vectors wait, keyword search goes on: "
                f"{one['reason']}"
            )


def _providers(providers: Sequence[Row]) -> Iterator[str]:
    for one in providers:
        if one["held_s"]:
            yield f"provider {one['provider']} asked to wait: {one['held_s']:.0f} s left"
        elif one["waiting"]:
            yield f"{one['waiting']:.0f} requests wait for the limit of provider {one['provider']}"


def _dead(streams: Sequence[Row]) -> Iterator[str]:
    count = sum(one["dead_letters"] for one in streams)
    if count:
        yield f"{count} dead letters: see `headrace dead list`"


def _late(alive: Sequence[Row]) -> Iterator[str]:
    for one in alive:
        if one["loop_lag_s"] > _LATE_SECONDS:
            lag = f"{one['loop_lag_s']:.1f} s"
            yield f"worker {one['worker']} came to nothing for {lag}: are there too few cores?"


def _versions(alive: Sequence[Row]) -> Iterator[str]:
    versions = sorted({str(one["version"]) for one in alive})
    if len(versions) > 1:
        yield f"workers of several versions run: {', '.join(versions)}"
