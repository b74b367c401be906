"""Changes as they lie in the log."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

from events.models import ContentReference, DocumentChange, DocumentChanged
from events.positions import LogPosition
from events.streams.changes import LoggedChange

__all__ = ["MOMENT", "at", "logged", "moment", "reference_to", "sha256_of"]

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> int:
    """A position so many seconds after a moment that all tests share."""
    return int(moment(seconds).timestamp() * 1000) << 21


def moment(seconds: float) -> datetime:
    """The time of a position."""
    return MOMENT + timedelta(seconds=seconds)


def sha256_of(text: str) -> str:
    """Hash in hex, as content is called by."""
    return hashlib.sha256(text.encode()).hexdigest()


def reference_to(text: str) -> ContentReference:
    """What an event says of content that travels apart."""
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
    """A change of a document; one without any content is a delete."""
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
