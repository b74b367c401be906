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

    ``contents``: text by hash (hex), or None if the change had a reference only.
    """

    changes: tuple[LoggedChange, ...]
    contents: Mapping[str, str | None]

    @property
    def inline(self) -> dict[str, str]:
        """The contents whose text is included."""
        return {sha256: text for sha256, text in self.contents.items() if text is not None}


def claim(changes: Iterable[LoggedChange]) -> Claims:
    """Separate changes from contents; of changes with the same log position, keep the first."""
    claimed: dict[LogPosition, LoggedChange] = {}
    contents: dict[str, str | None] = {}
    for change in changes:
        text = change.event.data.content
        reduced = change if text is None else _without_content(change, text)
        sha256 = reference(reduced)
        if sha256 is not None:
            contents[sha256] = contents.get(sha256) or text
        claimed.setdefault(change.log_position, reduced)
    return Claims(tuple(claimed.values()), contents)


def reference(change: LoggedChange) -> str | None:
    """Hash (hex) of the content that a claimed change refers to. None if it has no content."""
    content_ref = change.event.data.content_ref
    return None if content_ref is None else content_ref.sha256


def _without_content(change: LoggedChange, text: str) -> LoggedChange:
    sha256 = content_hash(text)
    content_ref = ContentReference(sha256=sha256, size_bytes=len(text.encode()))
    data = change.event.data.model_copy(
        update={"content": None, "content_ref": content_ref, "content_hash": sha256}
    )
    event = change.event.model_copy(update={"data": data})
    return LoggedChange(change.log_position, event)
