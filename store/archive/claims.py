"""Claim checks: an event is archived without its content, which is stored once by its hash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from events.models import ContentReference, content_hash
from events.names import LogPosition
from events.streams.changes import LoggedChange

__all__ = ["Claims", "claim", "reference"]


@dataclass(frozen=True, slots=True)
class Claims:
    """Changes without content, and the contents that they came with.

    ``contents``: bytes by hash (hex), or None if the change had a reference only.
    """

    changes: tuple[LoggedChange, ...]
    contents: Mapping[str, bytes | None]

    @property
    def inline(self) -> dict[str, bytes]:
        """The contents whose bytes are included."""
        return {sha256: raw for sha256, raw in self.contents.items() if raw is not None}


def claim(changes: Iterable[LoggedChange]) -> Claims:
    """Separate changes from contents; of changes with the same log position, keep the first."""
    claimed: dict[LogPosition, LoggedChange] = {}
    contents: dict[str, bytes | None] = {}
    for change in changes:
        body = change.event.data.body
        raw = body.encode() if isinstance(body, str) else body
        reduced = change if raw is None else _without_content(change, raw)
        sha256 = reference(reduced)
        if sha256 is not None:
            contents[sha256] = contents.get(sha256) or raw
        claimed.setdefault(change.log_position, reduced)
    return Claims(tuple(claimed.values()), contents)


def reference(change: LoggedChange) -> str | None:
    """Hash (hex) of the content that a claimed change refers to. None if it has no content."""
    content_ref = change.event.data.content_ref
    return None if content_ref is None else content_ref.sha256


def _without_content(change: LoggedChange, raw: bytes) -> LoggedChange:
    sha256 = content_hash(raw)
    update = {
        "content": None,
        "content_base64": None,
        "content_ref": ContentReference(sha256=sha256, size_bytes=len(raw)),
        "content_hash": sha256,
    }
    data = change.event.data.model_copy(update=update)
    event = change.event.model_copy(update={"data": data})
    return LoggedChange(change.log_position, event)
