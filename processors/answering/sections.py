"""Sections of an answer: code and other documents, each with a ranking of its own.

Documentation describes a thing in the words of a question, and so ranks above the code that does
it. Who looks for code finds it in its own section, and what is written about it in the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import get_args

from events.models import Kind, Query, Section
from processors.answering.fusion import Fused
from store.types import Candidates, ChunkPlace

__all__ = [
    "alternated",
    "has_sections",
    "narrowed_to",
    "scarce_sections",
    "section_of",
    "sections_of",
    "with_section",
]


def has_sections(query: Query) -> bool:
    """Return whether the answer to a query is divided, also if one section may be empty."""
    return query.sections and not query.filters.kinds


def narrowed_to(query: Query, section: Section) -> Query:
    """Return the same question for one section alone."""
    kinds = [kind for kind in Kind if kind is not Kind.CODE_EXAMPLE and section_of(kind) == section]
    return query.model_copy(
        update={"filters": query.filters.model_copy(update={"kinds": tuple(kinds)})}
    )


def scarce_sections(query: Query, candidates: Candidates, asked: int) -> list[Section]:
    """Sections with fewer candidates than results that are wanted, if there may be more.

    ``asked`` is the number of chunks that each retriever was asked for: if none returned as many,
    there are no more.
    """
    rankings = (*candidates.vector.values(), candidates.keyword)
    if not has_sections(query) or all(len(ranked) < asked for ranked in rankings):
        return []
    counts = Counter(_section_of_place(place) for place in candidates.places.values())
    return [section for section in get_args(Section) if counts[section] < query.limit]


def with_section(
    ranked: Sequence[Fused],
    places: Mapping[int, ChunkPlace],
    section: Section,
    own: Sequence[Fused],
) -> list[Fused]:
    """Replace the chunks of a section in a ranking by those of a search for it alone.

    They take the place of the first of the section, or follow the others.
    """
    of_section = [_section_of(chunk, places) == section for chunk in ranked]
    at = of_section.index(True) if any(of_section) else len(ranked)
    rest = [chunk for chunk, is_in in zip(ranked, of_section, strict=True) if not is_in]
    return [*rest[:at], *own, *rest[at:]]


def section_of(kind: str) -> Section:
    """Section of the documents of a kind."""
    return "code" if kind == Kind.CODE else "documents"


def sections_of(ranked: Sequence[Fused], places: Mapping[int, ChunkPlace]) -> list[Iterator[Fused]]:
    """Divide a ranking in two; the section of its first chunk comes first.

    Chunks are made when they are read, and most are not.
    """
    if not ranked:
        return []
    order: list[Section] = ["code", "documents"]
    order.sort(key=lambda section: section != _section_of(ranked[0], places))
    return [_in_section(section, ranked, places) for section in order]


def alternated(ranked: Sequence[Fused], places: Mapping[int, ChunkPlace]) -> list[Fused]:
    """Put the chunks of both sections in turn, so that the best of each are among the first."""
    turns: Iterator[tuple[Fused | None, ...]] = zip_longest(*sections_of(ranked, places))
    return [chunk for chunk in chain.from_iterable(turns) if chunk is not None]


def _in_section(
    section: Section, ranked: Sequence[Fused], places: Mapping[int, ChunkPlace]
) -> Iterator[Fused]:
    return (chunk for chunk in ranked if _section_of(chunk, places) == section)


def _section_of(chunk: Fused, places: Mapping[int, ChunkPlace]) -> Section:
    place = places.get(chunk.chunk_id)
    return "documents" if place is None else _section_of_place(place)


def _section_of_place(place: ChunkPlace) -> Section:
    return "code" if place.in_code else "documents"
