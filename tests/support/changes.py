"""Changes of the log, for tests."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from events.models import ContentReference, DocumentChange, DocumentChanged
from events.names import LogPosition
from events.streams.changes import LoggedChange

__all__ = ["MOMENT", "at", "logged", "moment", "reference_to", "sha256_of"]

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> int:
    """Position ``seconds`` after a moment that all tests share."""
    return int(moment(seconds).timestamp() * 1000) << 21


def moment(seconds: float) -> datetime:
    """Time of that position."""
    return MOMENT + timedelta(seconds=seconds)


def sha256_of(text: str) -> str:
    """SHA-256 of the text in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def reference_to(text: str) -> ContentReference:
    """Reference to the text as content outside its event."""
    return ContentReference(sha256=sha256_of(text), size_bytes=len(text.encode()))


def logged(
    uri: str,
    seconds: float,
    content: str | None = None,
    *,
    partition: int = 0,
    project: str = "alpha",
    event_id: str | None = None,
    **fields: Any,
) -> LoggedChange:
    """Change of a document; a delete if there is no content."""
    has_body = content is not None or "content_ref" in fields
    change = "upsert" if has_body else "delete"
    values: dict[str, Any] = {"change": change, "content": content} | fields
    data = DocumentChange(project=project, uri=uri, **values)
    event = DocumentChanged(
        id=event_id or f"{uri}@{seconds}:{partition}",
        source="tests",
        time=MOMENT,
        data=data,
    )
    return LoggedChange(LogPosition(at(seconds), partition), event)
