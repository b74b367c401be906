"""Operator's limits: each event is measured before any work is done for it.

The event models hold the protocol's limits; these can only be narrower. Workers apply them when an
event first arrives. Accepted events stay accepted: a replay applies none of these limits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Self, TypeVar

from events.models import DocumentChange, Event, QueryRequested
from runtime import protocol_limits
from runtime.errors import LimitExceeded
from runtime.settings import EventLimits, Settings

__all__ = ["Limits"]

E = TypeVar("E", bound=Event)


class Limits(EventLimits):
    """Checks of events against the limits of the setting ``HEADRACE_LIMITS``."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Read the limits from the settings."""
        return cls.model_validate(dict(settings.limits))

    def decoder(self, event: type[E]) -> Callable[[bytes], E]:
        """Return a function that parses events and refuses those that are too large.

        The function raises LimitExceeded, and MalformedEvent as ``Event.from_bytes`` does.
        """

        def decode(raw: bytes) -> E:
            if len(raw) <= protocol_limits.EVENT_BYTES:  # from_bytes refuses what is larger
                self._check("event_bytes", "the event", len(raw))
            return event.from_bytes(raw)

        return decode

    def check_change(self, change: DocumentChange) -> None:
        """Raise LimitExceeded if a field is over its limit."""
        self._check("uri_bytes", "uri", len(change.uri.encode()))
        self._check("uri_bytes", "old_uri", len((change.old_uri or "").encode()))
        self._check("title_characters", "title", len(change.title or ""))
        self._check("collections", "collections", len(change.collections))
        self._check("metadata_entries", "metadata", len(change.metadata))
        metadata = json.dumps(change.metadata, ensure_ascii=False)
        self._check("metadata_bytes", "metadata", len(metadata.encode()))

    def check_question(self, event: QueryRequested) -> None:
        """Raise LimitExceeded if a field is over its limit."""
        query = event.data
        self._check("query_characters", "text", len(query.text))
        self._check("results", "limit", query.limit)
        self._check("context_tokens", "context_tokens", query.context_tokens or 0)
        if query.deadline is not None:
            self._check("query_deadline", "deadline", query.deadline - event.time)

    def _check(self, name: str, field: str, size: int | timedelta) -> None:
        most = getattr(self, name)
        if size > most:
            raise LimitExceeded(
                f"{field}: {_shown(size, name)}, over the limit of {_shown(most, name)}",
                f"reduce it, or raise {name} in HEADRACE_LIMITS",
            )


def _shown(size: int | timedelta, name: str) -> str:
    if isinstance(size, timedelta):
        return f"{size.total_seconds():,.0f} s"
    return f"{size:,} {name.rpartition('_')[2]}"
