"""Attachments of a message, extracted as further sections of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

from content.detection import detect
from content.extractors.draft import Draft, cleaned, fence_mark
from content.registry import EXTRACTORS, extract
from content.rendition import Place, Rendition
from runtime.errors import Poison

__all__ = ["MOST_ATTACHMENTS", "MOST_ATTACHMENT_BYTES", "AttachmentWriter"]

MOST_ATTACHMENTS = 20
MOST_ATTACHMENT_BYTES = 16 << 20
_NESTED_KINDS = frozenset({"email", "conversation"})
"""Kinds that may hold attachments or messages of their own; they are not opened again."""
_TEXT_SUFFIXES = frozenset({".txt", ".text", ".log"})
"""Other names without a kind are signatures, calendars and the like."""
_HEADING_BYTES = 1_024


class AttachmentWriter:
    """Appends attachments to the draft of a message.

    At most 20 attachments of 16 MiB together are extracted.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._attachments = 0
        self._bytes = 0

    def put(self, name: str, media_type: str, raw: bytes, level: int, place: Place) -> bool:
        """Append an attachment as a section of ``level``, and return whether it was extracted.

        ``place`` is that of the message. An attachment that can't be extracted leaves no lines.
        """
        self._attachments += 1
        self._bytes += len(raw)
        if self._attachments > MOST_ATTACHMENTS or self._bytes > MOST_ATTACHMENT_BYTES:
            return False
        rendition = _rendition(name, media_type, raw)
        if rendition is None or not any(line.strip() for line in rendition.lines):
            return False
        size = sum(len(line.encode("utf-8", "replace")) + 1 for line in rendition.lines)
        if size + _HEADING_BYTES > self._draft.room:
            return False
        self._append(name, rendition, level, place)
        return True

    def _append(self, name: str, rendition: Rendition, level: int, place: Place) -> None:
        fragment = f"attachment={name.replace('&', '%26')}"
        places = [
            replace(place, fragment=f"{fragment}&{inner.fragment}" if inner.fragment else fragment)
            for inner in rendition.places
        ]
        self._draft.heading(
            level, f"Attachment {name}", replace(place, fragment=fragment), alone=True
        )
        sections = list(reversed(rendition.sections))
        for row, line in enumerate(rendition.lines):
            while sections and sections[-1].row <= row:
                inner_section = sections.pop()
                self._draft.section(
                    level + inner_section.level, inner_section.name, label=inner_section.label
                )
            self._draft.put(line, places[rendition.place_of[row]])
        self._draft.gap()
        for warning in rendition.warnings:
            self._draft.warn(f"{name}: {warning}")


def _rendition(name: str, media_type: str, raw: bytes) -> Rendition | None:
    """Rendition of a file of a known kind. Returns None if it is of another kind, or refused."""
    try:
        detection = detect(name, media_type, raw)
        if detection.kind in _NESTED_KINDS:
            return None
        if detection.kind in EXTRACTORS:
            return extract(detection.kind, raw)
    except Poison:
        return None
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - any error of a parser concerns this attachment
        return None
    text = detection.text or ""
    if detection.kind == "text" and PurePosixPath(name).suffix.lower() not in _TEXT_SUFFIXES:
        return None
    if detection.kind == "code":
        mark = fence_mark(text)
        text = f"{mark}{detection.language or ''}\n{text}\n{mark}"
    lines = tuple(cleaned(text).split("\n"))
    return Rendition(lines, (Place(),), (0,) * len(lines))
