"""Writer of renditions: clean lines, each with its place, within the limit of size."""

from __future__ import annotations

from content.extractors.texts import clean, single_line
from content.rendition import MOST_BYTES, Place, Rendition, Section
from runtime.errors import LimitExceeded

__all__ = ["NAME_CHARACTERS", "RenditionWriter"]

NAME_CHARACTERS = 300


class RenditionWriter:
    """Collects the lines, places and sections of one rendition."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._places: dict[Place, int] = {}
        self._place_of: list[int] = []
        self._sections: list[Section] = []
        self._bytes = 0

    def begin(
        self, level: int, name: str, *, label: str = "", alone: bool = False, parted: bool = True
    ) -> None:
        """Begin a section with the next line; ``parted`` puts a blank line before it."""
        if parted:
            self.blank()
        self._sections.append(
            Section(
                row=len(self._lines),
                level=level,
                name=single_line(name, NAME_CHARACTERS),
                label=single_line(label, NAME_CHARACTERS),
                alone=alone,
            )
        )

    def heading(self, level: int, name: str, place: Place) -> None:
        """Write a heading of Markdown."""
        self.write(f"{'#' * level} {single_line(name, NAME_CHARACTERS)}", place)

    def write(self, text: str, place: Place) -> None:
        """Write the lines of ``text``, all from ``place``.

        Raises:
            LimitExceeded: the rendition is over 8 MiB.
        """
        index = self._places.setdefault(place, len(self._places))
        for line in clean(text).splitlines() or ("",):
            self._bytes += len(line.encode()) + 1
            if self._bytes > MOST_BYTES:
                raise LimitExceeded(
                    f"the text of the document is over {MOST_BYTES >> 20} MiB",
                    "publish its parts as documents of their own",
                )
            self._lines.append(line.rstrip())
            self._place_of.append(index)

    def blank(self) -> None:
        """Write a blank line, unless the last line is blank or there is none."""
        if self._lines and self._lines[-1]:
            self._lines.append("")
            self._place_of.append(self._place_of[-1])

    def rendition(self, title: str | None, warnings: tuple[str, ...] = ()) -> Rendition:
        """Return what was written, with a title on a single line, or without one."""
        return Rendition(
            lines=tuple(self._lines),
            places=tuple(self._places),
            place_of=tuple(self._place_of),
            sections=tuple(self._sections),
            title=single_line(title, NAME_CHARACTERS) or None if title else None,
            warnings=warnings,
        )
