"""Sections of an answer: code and other documents, each with a ranking of its own.

Documentation describes a thing in the words of a question, and so ranks above the code that does
it. With sections, the code is found in its own, and the texts about it are in the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import get_args

from events.models import Filters, Kind, Query, Section
from processors.answering.fusion import Fused
from processors.answering.units import Passage, passages_of
from store.types import Candidates, ChunkPlace

__all__ = [
    "alternated",
    "divided_passages",
    "has_sections",
    "narrowed_to",
    "scarce_candidates",
    "scarce_sections",
    "section_of",
    "sections_of",
    "with_section",
    "with_sections",
]

_SMALL_CHUNKS = 100
"""A section with fewer chunks than this is not searched by itself."""

Places = Mapping[int, ChunkPlace]
Fuse = Callable[[Candidates], Sequence[Fused]]


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


async def scarce_candidates(
    query: Query,
    candidates: Candidates,
    asked: int,
    search: Callable[[Query], Awaitable[Candidates]],
    count: Callable[[Filters], Awaitable[int]],
) -> dict[Section, Candidates]:
    """Search each section by itself that has too few candidates, unless it is small."""
    scarce: dict[Section, Candidates] = {}
    for section in scarce_sections(query, candidates, asked):
        narrowed = narrowed_to(query, section)
        if await count(narrowed.filters) >= _SMALL_CHUNKS:
            scarce[section] = await search(narrowed)
    return scarce


def with_sections(
    ranked: Sequence[Fused], places: Places, scarce: Mapping[Section, Candidates], fuse: Fuse
) -> tuple[Sequence[Fused], Places]:
    """Return a ranking and the places of its chunks with those of sections searched alone."""
    for section, own in scarce.items():
        places = {**places, **own.places}
        ranked = with_section(ranked, places, section, fuse(own))
    return ranked, places


async def divided_passages(
    query: Query,
    ranked: Sequence[Fused],
    places: Places,
    diversify: Callable[[Sequence[Fused]], Awaitable[Sequence[Fused]]],
) -> list[Passage]:
    """Return the best passages, of each section after the other if there are several."""
    passages: list[Passage] = []
    for section in sections_of(ranked, places) if has_sections(query) else [ranked]:
        order: Iterable[Fused] = await diversify([*section]) if query.diversity else section
        passages += passages_of(order, places, query.limit, by_document=query.group == "document")
    return passages


def with_section(
    ranked: Sequence[Fused],
    places: Places,
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


def sections_of(ranked: Sequence[Fused], places: Places) -> list[Iterator[Fused]]:
    """Divide a ranking in two; the section of its first chunk comes first.

    Chunks are made when they are read, and most are not.
    """
    if not ranked:
        return []
    order: list[Section] = ["code", "documents"]
    order.sort(key=lambda section: section != _section_of(ranked[0], places))
    return [_in_section(section, ranked, places) for section in order]


def alternated(ranked: Sequence[Fused], places: Places) -> list[Fused]:
    """Put the chunks of both sections in turn, so that the best of each are among the first."""
    turns: Iterator[tuple[Fused | None, ...]] = zip_longest(*sections_of(ranked, places))
    return [chunk for chunk in chain.from_iterable(turns) if chunk is not None]


def _in_section(section: Section, ranked: Sequence[Fused], places: Places) -> Iterator[Fused]:
    return (chunk for chunk in ranked if _section_of(chunk, places) == section)


def _section_of(chunk: Fused, places: Places) -> Section:
    place = places.get(chunk.chunk_id)
    return "documents" if place is None else _section_of_place(place)


def _section_of_place(place: ChunkPlace) -> Section:
    return "code" if place.in_code else "documents"
