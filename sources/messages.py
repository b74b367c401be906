"""A change of a source as the event that is published."""

from __future__ import annotations

import hashlib
import json

from events.models import DocumentChange, DocumentChanged, content_hash
from sources.types import Change

__all__ = ["document_changed"]


def document_changed(
    change: Change, project: str, collections: tuple[str, ...] = (), agent: str | None = None
) -> DocumentChanged:
    """The event of a change; publishing it again in the same sync has the same id.

    Raises:
        pydantic.ValidationError: the project, the agent or a collection is out of its limits.
    """
    identity = json.dumps([project, agent, collections, change.key])
    return DocumentChanged(
        id=hashlib.sha256(identity.encode()).hexdigest(),
        source="headrace/sync",
        data=DocumentChange(
            project=project,
            agent=agent,
            collections=collections,
            uri=change.uri,
            change=change.change,
            old_uri=change.old_uri,
            content=change.content,
            content_hash=None if change.content is None else content_hash(change.content),
            commit=change.commit,
            permalink_template=change.permalink_template,
        ),
    )
