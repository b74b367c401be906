"""Changes of documents as CloudEvents, each with an id that is made once.

The id stays the same in every attempt to publish the change, so that it takes effect once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from headrace_client.errors import UsageError
from headrace_client.models import Lane, Scalar

__all__ = ["ChangeEvent", "delete", "rename", "upsert"]

_TYPE = "document.changed"
_SOURCE = "headrace-client"


@dataclass(frozen=True, slots=True)
class ChangeEvent:
    """An event that is ready to be sent. ``lane`` is None if the caller named none."""

    lane: Lane | None
    fields: Mapping[str, Any]

    def line(self, batch: str | None = None) -> bytes:
        """Return the event as one line of JSON, as a part of a batch if there is one."""
        fields = self.fields if batch is None else {**self.fields, "batch": batch}
        return json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def upsert(
    uri: str,
    content: str,
    *,
    title: str | None = None,
    kind: str | None = None,
    media_type: str | None = None,
    collections: Sequence[str] = (),
    metadata: Mapping[str, Scalar] | None = None,
    agent: str | None = None,
    lane: Lane | None = None,
    expected_hash: str | None = None,
    event_id: str | None = None,
) -> ChangeEvent:
    """Publish the content of a new or changed document.

    Args:
        uri: name of the document in its project.
        content: the whole text, at most 4 Mi characters.
        title: title of the document, shown in results.
        kind: kind of the content, such as ``markdown``; detected if None.
        media_type: media type of the content, such as ``text/markdown``.
        collections: names by which a question can filter.
        metadata: values by which a question can filter.
        agent: the agent of the API key, for a document that only this agent can find. None shares
            the document with all.
        lane: ``Lane.BULK`` for many changes, so that they don't delay urgent ones. The default is
            ``Lane.LIVE``, and in a batch the lane of the batch.
        expected_hash: SHA-256 (hex) of the content that the change replaces. If the document has
            another content, or does not exist, the change is rejected.
        event_id: id of the change, which is published once within 24 hours. The default is a new
            id for each call.

    Raises:
        UsageError: an argument is out of its limits.
        EventIdReused: another change was published with this ``event_id``.
        Unavailable: the gateway, or a server behind it, could not be reached before the deadline.
    """
    return _event(
        event_id,
        lane,
        change="upsert",
        uri=uri,
        content=content,
        title=title,
        kind=kind,
        media_type=media_type,
        collections=list(collections),
        metadata=dict(metadata or {}),
        agent=agent,
        expected_hash=expected_hash,
    )


def rename(
    uri: str,
    old_uri: str,
    content: str,
    *,
    title: str | None = None,
    kind: str | None = None,
    media_type: str | None = None,
    collections: Sequence[str] = (),
    metadata: Mapping[str, Scalar] | None = None,
    agent: str | None = None,
    lane: Lane | None = None,
    expected_hash: str | None = None,
    event_id: str | None = None,
) -> ChangeEvent:
    """Publish the new uri of a document, and its content, which may have changed too.

    ``old_uri`` is its uri until now. All other arguments and errors are those of ``upsert``.
    """
    return _event(
        event_id,
        lane,
        change="rename",
        uri=uri,
        old_uri=old_uri,
        content=content,
        title=title,
        kind=kind,
        media_type=media_type,
        collections=list(collections),
        metadata=dict(metadata or {}),
        agent=agent,
        expected_hash=expected_hash,
    )


def delete(
    uri: str,
    *,
    agent: str | None = None,
    lane: Lane | None = None,
    expected_hash: str | None = None,
    event_id: str | None = None,
) -> ChangeEvent:
    """Publish the end of a document; arguments and errors are those of ``upsert``."""
    return _event(
        event_id, lane, change="delete", uri=uri, agent=agent, expected_hash=expected_hash
    )


def _event(event_id: str | None, lane: Lane | None, **data: Any) -> ChangeEvent:
    if isinstance(data.get("content"), bytes):
        raise UsageError("the content is bytes, and this call takes a text", "use `put` for bytes")
    return ChangeEvent(
        lane,
        {
            "specversion": "1.0",
            "type": _TYPE,
            "id": event_id or str(uuid4()),
            "source": _SOURCE,
            "time": datetime.now(UTC).isoformat(),
            "data": {name: value for name, value in data.items() if value is not None},
        },
    )
