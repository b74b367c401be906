"""Rendition of a document: lines of Markdown, each with its place in the original bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

__all__ = ["MOST_BYTES", "Box", "Extractor", "Place", "Rendition", "Section"]

MOST_BYTES = 8 << 20
"""Bytes of UTF-8 that the lines of a rendition may have together."""


class Box(NamedTuple):
    """Rectangle on a page, in points from the page's lower left corner, as PDF counts them."""

    left: float
    bottom: float
    right: float
    top: float


@dataclass(frozen=True, slots=True)
class Place:
    """Place of lines of a rendition in the original.

    ``page`` counts from 1; it is also the number of a slide or of a sheet. ``box`` is on that page.
    ``fragment`` follows ``uri#`` in a citation (``page=3``, ``cell=12``, ``Costs!A2:F41``,
    ``GET /pets/{petId}``, an id of an HTML element). ``lines`` is the first and last line of the
    original, from 1, where the original is text. ``permalink`` is the address that the original
    itself gives for this place, as exports of chats do for messages.
    """

    page: int | None = None
    box: Box | None = None
    fragment: str = ""
    speakers: tuple[str, ...] = ()
    time: datetime | None = None
    lines: tuple[int, int] | None = None
    permalink: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Part of a rendition, from ``row`` (from 0) to the next section of its level or an outer one.

    Level 1 is the outermost. ``name`` is its part of a heading path. ``label`` is its part of the
    header that is embedded with chunks that do not contain its first row; an empty label stands for
    ``name``. A section that is ``alone`` is never merged with a neighbour into one chunk, and its
    name becomes the symbol of its chunks. ``lead`` is embedded with a chunk that begins with the
    section but not with the one around it: the end of the turn before.
    """

    row: int
    level: int
    name: str
    label: str = ""
    alone: bool = False
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Rendition:
    r"""Extracted document.

    ``lines`` are Markdown without ``\r`` and ``\n``. ``places`` are the distinct places, and
    ``place_of`` is an index into them for each line. ``sections`` are in the order of their rows.
    ``warnings`` say what could not be extracted, in at most 300 characters each, without text of
    the document. ``metadata`` are what the document says of itself as a whole, for filters.
    """

    lines: Sequence[str]
    places: Sequence[Place] = ()
    place_of: Sequence[int] = ()
    sections: Sequence[Section] = ()
    title: str | None = None
    warnings: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


class Extractor(Protocol):
    """Extracts one format."""

    def __call__(self, raw: bytes) -> Rendition:
        """Return the rendition of a document's bytes.

        Raises:
            UnsupportedContent: there is no text that can be extracted; the subclasses
                ``Encrypted``, ``NoTextLayer``, ``LegacyFormat`` and ``Damaged`` say why.
            LimitExceeded: the document has more parts than the extractor accepts.
        """
        ...
