"""Conversion of a source's change to the event that is published."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from urllib.parse import quote

from events.models import (
    ContentReference,
    DocumentChange,
    DocumentChanged,
    Kind,
    Origin,
    content_hash,
)
from sources.types import Change, Details

__all__ = ["document_changed"]


def document_changed(
    change: Change,
    project: str,
    collections: tuple[str, ...] = (),
    *,
    prefix: str = "",
    agent: str | None = None,
    origin: Origin | None = None,
    content_ref: ContentReference | None = None,
    batch: str | None = None,
) -> DocumentChanged:
    """Build the event of a change; the same change of the same sync always gets the same id.

    ``prefix`` is put before every uri. ``agent`` is the only one that may see the document; None:
    all may. ``content_ref`` replaces content too large for an event.
    ``batch`` is the id of the sync's batch.

    Raises:
        pydantic.ValidationError: the project, a uri or a collection exceeds its limits.
    """
    source = [] if origin is None else [origin.source, origin.revision]
    identity = [project, prefix, *source, change.uri, change.old_uri, change.change, change.target]
    content = None if content_ref is not None else change.content
    digest = None if change.content is None else content_hash(change.content)
    encoded = b64encode(content).decode() if isinstance(content, bytes) else None
    details = change.details or Details()
    return DocumentChanged(
        id=hashlib.sha256(json.dumps([*identity, *collections]).encode()).hexdigest(),
        source="headrace/sync",
        batch=batch,
        data=DocumentChange(
            project=project,
            agent=agent,
            collections=collections,
            uri=prefix + change.uri,
            change=change.change,
            old_uri=None if change.old_uri is None else prefix + change.old_uri,
            content=content if isinstance(content, str) else None,
            content_base64=encoded,
            content_ref=content_ref,
            content_hash=digest,
            commit=change.commit,
            permalink_template=details.permalink_template or _link(change, prefix),
            kind=None if details.kind is None else Kind(details.kind),
            media_type=details.media_type,
            title=details.title,
            metadata=details.metadata,
            origin=origin,
        ),
    )


def _link(change: Change, prefix: str) -> str | None:
    """Permalink template; with a prefix, the path in the repository is filled in."""
    template = change.permalink_template
    if template is None or not prefix:
        return template
    return template.replace("{path}", quote(change.uri))
