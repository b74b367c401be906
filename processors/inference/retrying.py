"""Delay before a request to a model is retried."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

__all__ = ["backoff", "retry_after"]

_FIRST = timedelta(milliseconds=250)
_LONGEST = timedelta(seconds=20)


def backoff(attempt: int) -> timedelta:
    """Exponential backoff, its upper half random; ``attempt`` counts from 0."""
    ceiling: timedelta = min(_FIRST * 2.0 ** min(attempt, 16), _LONGEST)
    return ceiling * random.uniform(0.5, 1)  # noqa: S311 - jitter needs no secrecy


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Parse ``Retry-After`` (RFC 9110, 10.2.3), which is in seconds or a date.

    Returns None if the header is missing or invalid.
    """
    value = next((v for name, v in headers.items() if name.lower() == "retry-after"), "").strip()
    try:
        seconds = float(value) if value else None
    except ValueError:
        return _until(value, now)
    if seconds is None or not 0 <= seconds < float("inf"):
        return None
    return timedelta(seconds=min(seconds, 86_400.0))


def _until(date: str, now: datetime) -> timedelta | None:
    try:
        then = parsedate_to_datetime(date)
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max(then - now, timedelta(0))
