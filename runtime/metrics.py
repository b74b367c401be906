"""All metrics, declared only here: of workers, of the deployment, and of the gateway.

A process counts its own; ``snapshot`` reads them for heartbeats, and ``own_families`` for scrapes.
Metrics of the deployment are read from the servers when they are scraped.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, TypeVar

from runtime.instruments import (
    Counter,
    Family,
    Gauge,
    Histogram,
    Metric,
    content_type,
    exposition,
)

__all__ = [
    "ARCHIVE_FAILURES",
    "ARCHIVE_OLDEST_SECONDS",
    "ARCHIVE_WAITING",
    "AUTHENTICATION_FAILED",
    "BUILD_INFO",
    "CHANGES",
    "CHANGES_ARCHIVED",
    "CHANGES_NOT_ARCHIVED",
    "CHANGES_REPUBLISHED",
    "CHANGES_TRIMMED",
    "CHUNKS_EMBEDDED",
    "CIRCUITS_OPENED",
    "CIRCUIT_STATE",
    "CIRCUIT_VALUES",
    "CONTEXTS_POSTPONED",
    "CONTEXTS_WRITTEN",
    "CONTEXT_COST_USD",
    "COST_USD",
    "DEAD_LETTERS",
    "DEAD_LETTER_ENTRIES",
    "DELIVERIES",
    "FRESHNESS_SECONDS",
    "GENERATION_INFO",
    "HTTP_BODY_BYTES",
    "HTTP_IN_FLIGHT",
    "HTTP_REQUESTS",
    "HTTP_REQUEST_SECONDS",
    "INDEXING_STAGE_SECONDS",
    "JUDGEMENTS",
    "MCP_CALLS",
    "MCP_CALL_SECONDS",
    "MCP_RESULT_TOKENS",
    "MESSAGES_BRIDGED",
    "MODEL_REQUESTS",
    "MODEL_REQUESTS_WAITING",
    "MODEL_REQUEST_SECONDS",
    "MODEL_WAIT_SECONDS",
    "PUBLISHING_REFUSED",
    "QUESTIONS",
    "QUESTION_SECONDS",
    "QUESTION_STAGE_SECONDS",
    "QUESTION_WAITS_REFUSED",
    "RATE_LIMITED",
    "REDIS_MEMORY_BYTES",
    "REDIS_MEMORY_LIMIT_BYTES",
    "RERANKS",
    "ROWS_EXPIRED",
    "STREAM_LAG",
    "STREAM_LENGTH",
    "STREAM_OLDEST_SECONDS",
    "STREAM_PENDING",
    "TOKENS_EMBEDDED",
    "WORKER_INFO",
    "WORKER_IN_WORK",
    "WORKER_LOOP_LAG_SECONDS",
    "WORKER_MEMORY_BYTES",
    "Counter",
    "Gauge",
    "Histogram",
    "Scope",
    "content_type",
    "declared",
    "exposition",
    "own_families",
    "snapshot",
]


class Scope(StrEnum):
    """Processes whose scrape has a metric."""

    WORKER = "worker"
    """Each worker counts its own."""

    DEPLOYMENT = "deployment"
    """Read from Redis and Postgres by the process that is scraped."""

    SHARED = "shared"
    """Each worker has its own; the gateway has those of all workers, by their heartbeats."""

    GATEWAY = "gateway"
    """Each process of the gateway counts its own."""


_declared: dict[str, tuple[Scope, Metric[Any]]] = {}
M = TypeVar("M", bound=Metric[Any])


def _declare(scope: Scope, metric: M) -> M:
    assert metric.name not in _declared, metric.name
    _declared[metric.name] = scope, metric
    return metric


_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SLOW = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_FRESHNESS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TOKENS = (50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000)

# Changes
CHANGES = _declare(
    Scope.WORKER, Counter("headrace_changes_total", "Handled changes.", "outcome", "lane")
)
FRESHNESS_SECONDS = _declare(
    Scope.WORKER,
    Histogram(
        "headrace_freshness_seconds",
        "Time from publishing a change until it is searchable by keyword.",
        *("lane", "project"),
        buckets=_FRESHNESS,
    ),
)
INDEXING_STAGE_SECONDS = _declare(
    Scope.WORKER,
    Histogram(
        "headrace_indexing_stage_seconds",
        "Duration of a stage for one batch: skip, resolve, cut, embed, write, report.",
        "stage",
        buckets=_SLOW,
    ),
)
DEAD_LETTERS = _declare(
    Scope.WORKER,
    Counter("headrace_dead_letters_total", "Dead-lettered events.", "topic", "error"),
)
DELIVERIES = _declare(
    Scope.WORKER,
    Counter(
        "headrace_deliveries_total",
        "Ends of deliveries: acknowledged, retried, reclaimed, lease_lost, dead_lettered.",
        *("topic", "kind"),
    ),
)
MESSAGES_BRIDGED = _declare(
    Scope.WORKER,
    Counter(
        "headrace_messages_bridged_total",
        "Messages that a bridge took from Kafka: published, duplicate or dead.",
        *("outcome", "lane"),
    ),
)

# Questions
QUESTIONS = _declare(
    Scope.WORKER,
    Counter(
        "headrace_questions_total",
        "Replies to questions: answered or failed; degraded and stale are true or false.",
        *("outcome", "mode", "degraded", "stale"),
    ),
)
QUESTION_SECONDS = _declare(
    Scope.WORKER,
    Histogram(
        "headrace_question_seconds",
        "Time from the receipt of a question by a worker to its reply.",
        "mode",
        buckets=(*_FAST, 30),
    ),
)
QUESTION_STAGE_SECONDS = _declare(
    Scope.WORKER,
    Histogram(
        "headrace_question_stage_seconds",
        "Duration of a stage of a question: wait, embed, search, fuse, rerank, assemble.",
        "stage",
        buckets=_FAST,
    ),
)
JUDGEMENTS = _declare(
    Scope.WORKER,
    Counter(
        "headrace_judgements_total",
        "Handled judgements of results, by verdict; refused: not of an answer that the asker got.",
        "verdict",
    ),
)
RERANKS = _declare(
    Scope.WORKER,
    Counter(
        "headrace_reranks_total",
        "Answers whose candidates were reranked, or kept in fused order: reranked, late or failed.",
        "outcome",
    ),
)
QUESTION_WAITS_REFUSED = _declare(
    Scope.WORKER,
    Counter(
        "headrace_question_waits_refused_total",
        "Questions answered as stale because too many were waiting.",
    ),
)

# Models
CHUNKS_EMBEDDED = _declare(
    Scope.WORKER,
    Counter("headrace_chunks_embedded_total", "Chunks sent to a model.", "model", "project"),
)
TOKENS_EMBEDDED = _declare(
    Scope.WORKER,
    Counter("headrace_tokens_embedded_total", "Tokens sent to a model.", "model", "project"),
)
COST_USD = _declare(
    Scope.WORKER,
    Counter("headrace_cost_usd_total", "Cost of embedding in US dollars.", "model", "project"),
)
CONTEXTS_WRITTEN = _declare(
    Scope.WORKER,
    Counter("headrace_contexts_written_total", "Chunks that got a context.", "model", "project"),
)
CONTEXTS_POSTPONED = _declare(
    Scope.SHARED,
    Gauge(
        "headrace_contexts_postponed_entries",
        "Documents that wait for contexts because of the daily budget: it is spent (budget), or "
        "the price of the model is not known (price).",
        *("project", "reason"),
    ),
)
CONTEXT_COST_USD = _declare(
    Scope.WORKER,
    Counter(
        "headrace_context_cost_usd_total", "Cost of contexts in US dollars.", "model", "project"
    ),
)
MODEL_REQUESTS = _declare(
    Scope.WORKER,
    Counter("headrace_model_requests_total", "Requests to remote models.", *("model", "outcome")),
)
MODEL_REQUEST_SECONDS = _declare(
    Scope.WORKER,
    Histogram(
        "headrace_model_request_seconds",
        "Duration of a request to a remote model.",
        "model",
        buckets=_SLOW,
    ),
)
MODEL_REQUESTS_WAITING = _declare(
    Scope.WORKER,
    Gauge("headrace_model_requests_waiting", "Requests that wait for a rate limit.", "provider"),
)
MODEL_WAIT_SECONDS = _declare(
    Scope.WORKER,
    Histogram(
        "headrace_model_turn_wait_seconds",
        "Time that a request waited for a rate limit.",
        "provider",
        buckets=_SLOW,
    ),
)
CIRCUIT_STATE = _declare(
    Scope.SHARED,
    Gauge(
        "headrace_model_circuit_state",
        "State of the circuit of a remote model: 0 closed, 0.5 half-open, 1 open.",
        "model",
    ),
)
CIRCUIT_VALUES = {"closed": 0.0, "half_open": 0.5, "open": 1.0}
"""Values of ``CIRCUIT_STATE``."""

CIRCUITS_OPENED = _declare(
    Scope.WORKER,
    Counter("headrace_model_circuits_opened_total", "Times that a circuit opened.", "model"),
)

# The archive and the log
CHANGES_ARCHIVED = _declare(
    Scope.WORKER,
    Counter("headrace_changes_archived_total", "Changes written to the archive."),
)
CHANGES_NOT_ARCHIVED = _declare(
    Scope.WORKER,
    Counter("headrace_changes_not_archived_total", "Entries that the archiver skipped.", "reason"),
)
CHANGES_REPUBLISHED = _declare(
    Scope.WORKER,
    Counter("headrace_changes_republished_total", "Durable changes that were missing from Redis."),
)
CHANGES_TRIMMED = _declare(
    Scope.WORKER,
    Counter("headrace_changes_trimmed_total", "Entries trimmed from the change streams."),
)
ROWS_EXPIRED = _declare(
    Scope.WORKER,
    Counter(
        "headrace_expired_total",
        "What the archiver has let expire: ledger entries, batches, tombstones, vectors, and "
        "generations.",
        "kind",
    ),
)
ARCHIVE_FAILURES = _declare(
    Scope.WORKER, Counter("headrace_archive_failures_total", "Failed attempts to archive.")
)

# Processes
WORKER_INFO = _declare(
    Scope.SHARED,
    Gauge("headrace_worker_info", "1 for each role of a worker.", "worker", "role", "version"),
)
WORKER_MEMORY_BYTES = _declare(
    Scope.SHARED,
    Gauge("headrace_worker_memory_bytes", "Resident memory of the worker itself.", "worker"),
)
WORKER_LOOP_LAG_SECONDS = _declare(
    Scope.SHARED,
    Gauge(
        "headrace_worker_loop_lag_seconds",
        "Longest lag of the event loop between the last two heartbeats.",
        "worker",
    ),
)
WORKER_IN_WORK = _declare(
    Scope.SHARED,
    Gauge("headrace_worker_in_work_entries", "Events that are being handled.", "worker", "topic"),
)
BUILD_INFO = _declare(
    Scope.SHARED,
    Gauge(
        "headrace_build_info",
        "1 for the scraped process; revision is that of the schema which its code expects.",
        *("version", "revision", "python"),
    ),
)

# The deployment
STREAM_LAG = _declare(
    Scope.DEPLOYMENT,
    Gauge(
        "headrace_stream_lag_entries",
        "Entries that were not delivered yet.",
        *("topic", "partition"),
    ),
)
STREAM_PENDING = _declare(
    Scope.DEPLOYMENT,
    Gauge(
        "headrace_stream_pending_entries",
        "Entries that were delivered and not acknowledged yet.",
        *("topic", "partition"),
    ),
)
STREAM_OLDEST_SECONDS = _declare(
    Scope.DEPLOYMENT,
    Gauge(
        "headrace_stream_oldest_unacknowledged_seconds",
        "Age of the oldest entry that was not acknowledged yet; 0 if there is none.",
        *("topic", "partition"),
    ),
)
STREAM_LENGTH = _declare(
    Scope.DEPLOYMENT,
    Gauge(
        "headrace_stream_length_entries",
        "Entries that the stream keeps, handled or not.",
        *("topic", "partition"),
    ),
)
DEAD_LETTER_ENTRIES = _declare(
    Scope.DEPLOYMENT,
    Gauge(
        "headrace_dead_letter_entries",
        "Dead letters that were neither redriven nor dropped.",
        *("topic", "partition"),
    ),
)
REDIS_MEMORY_BYTES = _declare(
    Scope.DEPLOYMENT, Gauge("headrace_redis_memory_bytes", "Memory that Redis uses.")
)
REDIS_MEMORY_LIMIT_BYTES = _declare(
    Scope.DEPLOYMENT,
    Gauge("headrace_redis_memory_limit_bytes", "Memory limit of Redis; absent without a limit."),
)
ARCHIVE_WAITING = _declare(
    Scope.DEPLOYMENT,
    Gauge(
        "headrace_archive_waiting_entries",
        "Changes that were not archived yet.",
        *("topic", "partition"),
    ),
)
ARCHIVE_OLDEST_SECONDS = _declare(
    Scope.DEPLOYMENT,
    Gauge(
        "headrace_archive_oldest_unarchived_seconds",
        "Age of the oldest change that was not archived yet; 0 if there is none.",
        *("topic", "partition"),
    ),
)
GENERATION_INFO = _declare(
    Scope.DEPLOYMENT,
    Gauge(
        "headrace_generation_info",
        "1 for each generation of a project.",
        *("project", "generation", "state"),
    ),
)

# The gateway
HTTP_REQUESTS = _declare(
    Scope.GATEWAY,
    Counter(
        "headrace_http_requests_total",
        "Requests by route template.",
        *("route", "method", "status"),
    ),
)
HTTP_REQUEST_SECONDS = _declare(
    Scope.GATEWAY,
    Histogram(
        "headrace_http_request_seconds",
        "Time from a request's head to the end of its response.",
        *("route", "method"),
        buckets=(*_FAST, 30, 60),
    ),
)
HTTP_IN_FLIGHT = _declare(
    Scope.GATEWAY, Gauge("headrace_http_in_flight", "Requests that are being handled.")
)
HTTP_BODY_BYTES = _declare(
    Scope.GATEWAY,
    Counter(
        "headrace_http_body_bytes_total",
        "Bytes of request bodies, as they were received.",
        *("route", "method"),
    ),
)
MCP_CALLS = _declare(
    Scope.GATEWAY,
    Counter(
        "headrace_mcp_calls_total",
        "Calls of tools, reads of resources and completions; outcome is ok or the error's code.",
        *("tool", "transport", "outcome"),
    ),
)
MCP_CALL_SECONDS = _declare(
    Scope.GATEWAY,
    Histogram(
        "headrace_mcp_call_seconds",
        "Duration of a call, or of a read or a completion.",
        *("tool", "transport"),
        buckets=(*_FAST, 30, 60),
    ),
)
MCP_RESULT_TOKENS = _declare(
    Scope.GATEWAY,
    Histogram(
        "headrace_mcp_result_tokens",
        "Upper bound of the tokens of a result's text: its bytes / 3.",
        "tool",
        buckets=_TOKENS,
    ),
)
RATE_LIMITED = _declare(
    Scope.GATEWAY,
    Counter("headrace_rate_limited_total", "Requests refused by a rate limit.", "reason"),
)
AUTHENTICATION_FAILED = _declare(
    Scope.GATEWAY,
    Counter("headrace_authentication_failed_total", "Requests without a valid key.", "reason"),
)
PUBLISHING_REFUSED = _declare(
    Scope.GATEWAY,
    Counter(
        "headrace_publishing_refused_total",
        "Changes that were refused before they reached the log, by the error's code.",
        "reason",
    ),
)


def declared() -> dict[str, tuple[Scope, Metric[Any]]]:
    """Return every metric by name, with the processes whose scrape has it."""
    return dict(_declared)


def own_families(scope: Scope) -> Iterator[Family]:
    """Yield the metrics of this process for an exposition.

    ``scope`` is ``Scope.WORKER`` or ``Scope.GATEWAY``: a gateway archives nothing, so it has no
    count of archived changes, not even 0.
    """
    for metric_scope, metric in _declared.values():
        if metric_scope in {scope, Scope.SHARED}:
            yield from metric.families()


def snapshot() -> dict[str, float]:
    """Return every series of this process with a value, those of all projects together.

    A histogram has ``.count``, ``.sum``, ``.p50`` and ``.p99``.
    """
    return {
        name: value for _, metric in _declared.values() for name, value in metric.read().items()
    }
