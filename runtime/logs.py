"""Logging of a process: structlog on stderr, as JSON or as text for a terminal.

The loggers of the standard library (those of Faust, aiohttp, LiteLLM) are rendered the same way.
Correlation ids (``event_id``, ``query_id``, ``project``) are bound once, with
``structlog.contextvars``, and appear in every later line. Within a span, ``trace_id`` and
``span_id`` do too.
"""

from __future__ import annotations

import logging
import re
import sys
from io import StringIO
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from runtime import traces
from runtime.secrets import masked
from runtime.terminal import printable

__all__ = ["configure_logs", "with_trace_ids", "without_secrets"]

# limited to warnings: their info lines repeat our own
_VERBOSE = ("aiokafka", "alembic", "asyncio", "faust", "httpcore", "httpx", "LiteLLM", "mode")
# logs a traceback for each connection that an outage breaks; the callers log the error in one line
_TRACEBACK_LOGGER = "asyncpg.pool"
_SECRET_NAMES = re.compile(r"password|secret|api_?key|authorization", re.IGNORECASE)
_MASK = "***"


def configure_logs(form: Literal["console", "json"], level: str) -> None:
    """Set up logging for this process; composition roots call it once.

    Args:
        form: JSON (one object per line) or readable lines (coloured on a terminal).
        level: least severe level that is shown.
    """
    steps: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        with_trace_ids,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        without_secrets,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *steps,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _Masking(
            foreign_pre_chain=steps,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(form),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.getLogger(_TRACEBACK_LOGGER).setLevel(logging.ERROR)


def with_trace_ids(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Add the ids of the current span."""
    event.update(traces.log_ids())
    return event


def without_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mask values whose name reveals a secret."""
    for name in event:
        if _SECRET_NAMES.search(name):
            event[name] = _MASK
    return event


class _Masking(structlog.stdlib.ProcessorFormatter):
    """Mask secrets in rendered lines: libraries and tracebacks may quote a value that holds one."""

    def format(self, record: logging.LogRecord) -> str:
        """Render the line without secrets."""
        return masked(super().format(record))


def _rendering(form: Literal["console", "json"]) -> list[Processor]:
    if form == "json":
        # no local variables: they may hold secrets, and the texts of tenants
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        return [
            structlog.processors.ExceptionRenderer(tracebacks),
            structlog.processors.JSONRenderer(),
        ]
    return [
        _printable_values,
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=_plain_traceback
        ),
    ]


def _printable_values(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Escape control characters: a log line may quote untrusted text. JSON escapes it by itself."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value)
    return event


def _plain_traceback(out: TextIO, error: ExcInfo) -> None:
    """Write a plain traceback: a rich one would print local variables, which may hold secrets."""
    text = StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(printable(text.getvalue()))
