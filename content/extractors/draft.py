"""Draft of a rendition: lines are appended to it, each with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping

from content.rendition import MOST_BYTES, Place, Rendition, Section
from runtime.errors import LimitExceeded

__all__ = ["Draft", "cleaned", "fence_mark"]

_MOST_WARNINGS = 16
_MOST_WARNING_CHARACTERS = 300
_MOST_NAME_CHARACTERS = 300
_LINE_END = re.compile(r"\r\n?")
_UNWANTED = re.compile(r"[\0\ud800-\udfff]")
_FENCE_MARKS = re.compile(r"`{3,}")


class Draft:
    """Lines of Markdown with their places and sections."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.sections: list[Section] = []
        self.warnings: list[str] = []
        self._place_of: list[int] = []
        self._places: dict[Place, int] = {}
        self._last_place: Place | None = None
        self._last_index = 0
        self._bytes = 0

    @property
    def room(self) -> int:
        """Bytes of UTF-8 that may still be appended."""
        return MOST_BYTES - self._bytes

    def put(self, text: str, place: Place) -> None:
        """Append the lines of ``text``.

        Raises:
            LimitExceeded: the rendition would have more than 8 MiB.
        """
        if place is not self._last_place:
            self._last_place = place
            self._last_index = self._places.setdefault(place, len(self._places))
        index = self._last_index
        for line in cleaned(text).split("\n"):
            self._bytes += 1 + (len(line) if line.isascii() else len(line.encode()))
            if self._bytes > MOST_BYTES:
                raise LimitExceeded(
                    f"the document has more than {MOST_BYTES >> 20} MiB of text",
                    "publish its parts as documents of their own",
                )
            self.lines.append(line)
            self._place_of.append(index)

    def gap(self) -> None:
        """Append a blank line, except at the start and after another one."""
        if self.lines and self.lines[-1].strip():
            self.lines.append("")
            self._place_of.append(self._place_of[-1])
            self._bytes += 1

    def block(self, text: str, place: Place) -> None:
        """Append lines that blank lines separate from their neighbours."""
        self.gap()
        self.put(text, place)
        self.gap()

    def heading(
        self, level: int, name: str, place: Place, *, label: str = "", alone: bool = False
    ) -> None:
        """Append a heading and begin the section that it names. ``level`` counts from 1."""
        name = " ".join(cleaned(name).split())
        self.gap()
        self.section(level, name, label=label, alone=alone)
        self.put(f"{'#' * min(level, 6)} {name}", place)
        self.gap()

    def section(self, level: int, name: str, *, label: str = "", alone: bool = False) -> None:
        """Begin a section at the next line."""
        name = cleaned(name)[:_MOST_NAME_CHARACTERS]
        label = cleaned(label)[:_MOST_NAME_CHARACTERS]
        self.sections.append(Section(len(self.lines), level, name, label, alone))

    def warn(self, warning: str) -> None:
        """Add a warning, unless it is there already or there are 16 of them."""
        warning = cleaned(warning).replace("\n", " ")
        if len(warning) > _MOST_WARNING_CHARACTERS:
            warning = warning[: _MOST_WARNING_CHARACTERS - 1] + "…"
        if warning not in self.warnings and len(self.warnings) < _MOST_WARNINGS:
            self.warnings.append(warning)

    def rendition(
        self, title: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> Rendition:
        """Return what was appended, without blank lines at its end."""
        while self.lines and not self.lines[-1].strip():
            self.lines.pop()
            self._place_of.pop()
        title = " ".join(cleaned(title or "").split())
        return Rendition(
            lines=tuple(self.lines),
            places=tuple(self._places),
            place_of=tuple(self._place_of),
            sections=tuple(self.sections),
            title=title or None,
            warnings=tuple(self.warnings),
            metadata=metadata or {},
        )


def cleaned(text: str) -> str:
    """Return ``text`` with plain line ends, and without NUL and lone surrogates."""
    if "\r" in text:
        text = _LINE_END.sub("\n", text)
    if "\0" in text or not _is_encodable(text):
        text = _UNWANTED.sub(lambda match: "" if match[0] == "\0" else "\ufffd", text)
    return text


def _is_encodable(text: str) -> bool:
    """True for a text without surrogates; encoding finds them faster than a regular expression."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def fence_mark(text: str) -> str:
    """Return the mark of a fence around ``text``: longer than every run of backticks in it."""
    longest = max(map(len, _FENCE_MARKS.findall(text)), default=2)
    return "`" * (longest + 1)
