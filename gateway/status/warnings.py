"""Warnings about the state of a deployment: one line each, with the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from events.server.connection import MemoryUse
from events.streams.backlog import Backlog
from gateway.status import rows
from runtime.metrics import CONTEXTS_POSTPONED

__all__ = ["SILENT_SECONDS", "alarms"]

SILENT_SECONDS = 10.0
"""A worker without a heartbeat for this long counts as silent; workers beat every two seconds."""

_BUDGET = {
    "budget": "the budget of the day is spent; they get them tomorrow (UTC), or raise "
    "`budget_usd_per_day` in HEADRACE_CONTEXT",
    "price": "the price of the language model is not known, so its budget cannot be kept; remove "
    "`budget_usd_per_day` from HEADRACE_CONTEXT",
}
_LATE_SECONDS = 1.0
_READERS = {"document.changed": "indexer", "document.chunked": "embedder", "query": "answerer"}


def alarms(snapshot: rows.Snapshot) -> list[str]:
    """Warnings about a snapshot, the worst first."""
    alive = [worker for worker in snapshot.workers if worker.silent_s <= SILENT_SECONDS]
    return [
        *_memory(snapshot.memory),
        *_missing_roles(snapshot.streams, alive),
        *_silent(snapshot.workers),
        *_models(snapshot.models),
        *_providers(snapshot.providers),
        *_contexts(alive),
        *_dead_letters(snapshot.streams),
        *_late(alive),
        *_versions(alive),
    ]


def _memory(memory: MemoryUse) -> Iterator[str]:
    if memory.refuses_questions:
        yield (
            f"Redis is at {memory.share:.0%} of its memory limit, so changes and questions are "
            "refused; raise maxmemory"
        )
    elif memory.refuses_changes:
        yield (
            f"Redis is at {memory.share:.0%} of its memory limit, so changes are refused; "
            "let the workers catch up, shorten HEADRACE_STREAM_RETENTION, or raise maxmemory"
        )


def _missing_roles(streams: Sequence[Backlog], alive: Sequence[rows.Worker]) -> Iterator[str]:
    for family, role in _READERS.items():
        waiting = [stream for stream in streams if stream.topic.startswith(family)]
        waits = any(stream.oldest_unacknowledged is not None for stream in waiting)
        if waits and not any(role in worker.roles for worker in alive):
            yield f"events are waiting, but no {role} runs; start `headrace worker --only {role}`"


def _silent(workers: Sequence[rows.Worker]) -> Iterator[str]:
    for worker in workers:
        if worker.silent_s > SILENT_SECONDS:
            silence = f"{worker.silent_s:.0f} s"
            yield f"worker {worker.worker} has been silent for {silence}: it was killed or hangs"


def _models(models: Sequence[rows.Model]) -> Iterator[str]:
    for model in models:
        if model.down_in:
            where = f"{model.down_in} of {model.workers} workers"
            yield (
                f"model {model.model} is down for {where}: vectors wait (or contexts, if it "
                f"writes them), keyword search works: {model.reason}"
            )


def _providers(providers: Sequence[rows.Provider]) -> Iterator[str]:
    for provider in providers:
        if provider.held_s:
            left = f"{provider.held_s:.0f} s left"
            yield f"requests to provider {provider.provider} are paused: {left}"
        elif provider.waiting:
            waiting = f"{provider.waiting} requests wait"
            yield f"{waiting} for the rate limit of provider {provider.provider}"


def _contexts(alive: Sequence[rows.Worker]) -> Iterator[str]:
    for reason, cause in _BUDGET.items():
        series = f"{CONTEXTS_POSTPONED.name}{{reason={reason}}}"
        # only one worker writes contexts at a time, and the others may have counted before
        documents = max((int(worker.metrics.get(series, 0)) for worker in alive), default=0)
        if documents:
            yield f"{documents:,} documents go without contexts for now: {cause}"


def _dead_letters(streams: Sequence[Backlog]) -> Iterator[str]:
    count = sum(stream.dead_letters for stream in streams)
    if count:
        letters = "dead letter" if count == 1 else "dead letters"
        yield f"{count} {letters}; run `headrace dead list`"


def _late(alive: Sequence[rows.Worker]) -> Iterator[str]:
    for worker in alive:
        if worker.loop_lag_s > _LATE_SECONDS:
            lag = f"{worker.loop_lag_s:.1f} s"
            yield (
                f"worker {worker.worker}: event loop was blocked for {lag}; "
                "the host may be short of CPU"
            )


def _versions(alive: Sequence[rows.Worker]) -> Iterator[str]:
    versions = sorted({worker.version for worker in alive})
    if len(versions) > 1:
        yield f"workers of several versions run: {', '.join(versions)}"
