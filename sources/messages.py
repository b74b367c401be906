"""A change of a source as the event that is published."""

from __future__ import annotations

import hashlib
import json
from urllib.parse import quote

from events.models import ContentReference, DocumentChange, DocumentChanged, Origin, content_hash
from sources.types import Change

__all__ = ["document_changed"]


def document_changed(
    change: Change,
    project: str,
    collections: tuple[str, ...] = (),
    *,
    prefix: str = "",
    origin: Origin | None = None,
    content_ref: ContentReference | None = None,
) -> DocumentChanged:
    """The event of a change. Published again by the same sync, it has the same id.

    ``prefix`` stands before every uri. ``content_ref`` stands for a content that no event can hold.

    Raises:
        pydantic.ValidationError: the project, a uri or a collection is out of its limits.
    """
    source = [] if origin is None else [origin.source, origin.revision]
    place = [project, prefix, *source, change.uri, change.old_uri, change.change, change.want]
    content = None if content_ref is not None else change.content
    digest = None if change.content is None else content_hash(change.content)
    return DocumentChanged(
        id=hashlib.sha256(json.dumps([*place, *collections]).encode()).hexdigest(),
        source="headrace/sync",
        data=DocumentChange(
            project=project,
            collections=collections,
            uri=prefix + change.uri,
            change=change.change,
            old_uri=None if change.old_uri is None else prefix + change.old_uri,
            content=content,
            content_ref=content_ref,
            content_hash=digest,
            commit=change.commit,
            permalink_template=_link(change, prefix),
            origin=origin,
        ),
    )


def _link(change: Change, prefix: str) -> str | None:
    """The prefix is no part of the repository, so the path is filled in where there is one."""
    template = change.permalink_template
    if template is None or not prefix:
        return template
    return template.replace("{path}", quote(change.uri))
