"""Chunker of extracted documents: cuts by section, like Markdown, and gives chunks their places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from content.places import locator_of
from content.rendition import Rendition
from processors.chunking.chunkers.markdown import Markdown
from processors.chunking.chunkers.prose import Heading, chunk_sections
from processors.chunking.packing.lines import Lines
from processors.chunking.types import Chunk, CountTokens, Source

__all__ = ["cut_rendition", "headings_of", "located"]


def cut_rendition(
    source: Source, rendition: Rendition, limit_tokens: int, count: CountTokens
) -> list[Chunk]:
    """Cut the lines of a rendition of ``source`` into chunks with locators."""
    lines = Lines("\n".join(rendition.lines), count)
    markdown = Markdown(source, lines)
    headings = headings_of(rendition)
    titled = replace(source, title=source.title or rendition.title)
    chunks = chunk_sections(titled, lines, headings, markdown.rank, limit_tokens, markdown.blocks)
    return [located(rendition, chunk) for chunk in chunks]


def headings_of(rendition: Rendition) -> list[Heading]:
    """Sections of a rendition as headings."""
    return [
        Heading(
            *(section.row, section.level, section.name, section.label, section.alone),
            lead=section.lead,
        )
        for section in rendition.sections
    ]


def located(rendition: Rendition, chunk: Chunk) -> Chunk:
    """Return a chunk of a rendition with its place in the original."""
    locator = _locator(rendition, chunk)
    if locator is None:
        return chunk
    return chunk._replace(locator={**locator, **(chunk.locator or {})}, page=locator.get("page"))


def _locator(rendition: Rendition, chunk: Chunk) -> Mapping[str, Any] | None:
    if not rendition.place_of:
        return None
    rows = range(chunk.start_line - 1, chunk.end_line)
    numbers = dict.fromkeys(rendition.place_of[row] for row in rows if rendition.lines[row].strip())
    return locator_of([rendition.places[number] for number in numbers])
