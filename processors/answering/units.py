"""Passages: neighbouring chunks of one unit joined, and the passages of one document grouped.

A unit is a function, a class or a section. Chunks of one unit that are neighbours in their document
become one passage, also with a single chunk between them. No answer has two passages of one
function: what cannot be joined becomes an other match of the best passage.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain

from content.signatures import owners_of, symbols_of
from processors.answering.fusion import Fused
from store.types import ChunkPlace

__all__ = ["JOINED_CHUNKS", "PASSAGE_TOKENS", "Passage", "passages_of"]

PASSAGE_TOKENS = 512
"""Most tokens of a passage of several chunks, headers included."""

JOINED_CHUNKS = 20
"""Best chunks that join the passage that they belong to, however few passages are wanted."""

_MOST_CACHED = 16_384
_NO_NAMES: frozenset[str] = frozenset()
_FARTHEST = 2
"""Difference of the ordinals of two chunks that may be joined: one chunk may be between them."""


@dataclass(frozen=True)
class Passage:
    """Chunks of a document that make one result.

    ``best`` is the highest ranking chunk, and ``rank`` its rank from 0. ``places`` are those of the
    chunks that the question found, by chunk id in the order of the text; it is empty if the place
    of ``best`` is unknown. Chunks between them belong to the passage too. ``others``: other matches
    in the document, best first.
    """

    best: Fused
    rank: int = 0
    places: Mapping[int, ChunkPlace] = field(default_factory=dict)
    others: tuple[Passage, ...] = ()

    @property
    def chunk_ids(self) -> list[int]:
        """Ids of the chunks that the question found, in the order of the text."""
        return [*self.places] or [self.best.chunk_id]

    @property
    def document_id(self) -> int | None:
        """Id of the document, or None if it is unknown."""
        return next((place.document_id for place in self.places.values()), None)

    @cached_property
    def ordinals(self) -> range:
        """Ordinals of all chunks of the passage."""
        places = [*self.places.values()]
        return range(places[0].ordinal, places[-1].ordinal + 1) if places else range(0)

    @cached_property
    def names(self) -> frozenset[str]:
        """Qualified names of the units of code, without those of units around others."""
        return _NO_NAMES.union(*map(_names_of, self._symbols))

    @cached_property
    def scopes(self) -> frozenset[str]:
        """Names of the units of code, and of the innermost units around them."""
        return _NO_NAMES.union(*map(_scopes_of, self._symbols))

    @property
    def _symbols(self) -> list[str | None]:
        """Symbols of the chunks of code, without those of examples."""
        places = self.places.values()
        return [place.symbol for place in places if place.is_code and not place.is_example]

    @property
    def lines(self) -> tuple[int, int]:
        """First and last line."""
        ends = max(place.end_line for place in self.places.values())
        return min(place.start_line for place in self.places.values()), ends

    @property
    def tokens(self) -> int:
        """Tokens of the chunks; those of the chunks between them are estimated by their lines."""
        tokens = sum(place.tokens for place in self.places.values())
        lines = sum(place.end_line - place.start_line + 1 for place in self.places.values())
        first, last = self.lines
        return tokens * (last - first + 1) // max(lines, 1) if self.has_gap else tokens

    @property
    def has_gap(self) -> bool:
        """True if chunks between those that the question found belong to the passage."""
        return len(self.ordinals) > len(self.places)


def passages_of(
    ranked: Iterable[Fused],
    places: Mapping[int, ChunkPlace],
    limit: int,
    *,
    by_document: bool = False,
) -> list[Passage]:
    """Return the best ``limit`` passages, best first; with ``by_document``, one per document.

    A passage ranks as its best chunk. The chunks that rank below the last passage and below the
    best ``JOINED_CHUNKS`` are left out, so that weak neighbours do not make passages longer.
    """
    by_key: dict[int, list[Passage]] = {}
    for rank, fused in enumerate(ranked):
        count = len(by_key) if by_document else sum(map(len, by_key.values()))
        if count >= limit and rank >= JOINED_CHUNKS:
            break
        place = places.get(fused.chunk_id)
        passage = Passage(fused, rank, {} if place is None else {fused.chunk_id: place})
        key = -fused.chunk_id if place is None else place.document_id
        own = by_key.get(key, [])
        if not _join(own, passage) and (count < limit or (by_document and own)):
            by_key.setdefault(key, []).append(passage)
    if by_document:
        return [_grouped(own) for own in by_key.values()]
    return list(_by_rank(*by_key.values()))


def _join(own: list[Passage], passage: Passage) -> bool:
    """Add a passage of one chunk to a better one of its document, if they belong together.

    ``own`` are the better passages of the document, best first.
    """
    if not own:
        return False
    ordinal = passage.ordinals.start
    for at, draft in enumerate(own):
        if ordinal in draft.ordinals:
            own[at] = _union([draft, passage])
            return True
    for belongs in (_of_one_function, _of_one_unit):
        for at, draft in enumerate(own):
            if belongs(draft, passage):
                if _grow(own, at, passage):
                    return True
                if belongs is _of_one_function:
                    own[at] = replace(draft, others=_with_other(draft.others, passage))
                    return True
    return False


def _with_other(others: Sequence[Passage], passage: Passage) -> tuple[Passage, ...]:
    """Return other matches with one more, which is joined to its neighbour if it has one."""
    own = list(others)
    for at, other in enumerate(others):
        if _distance(other, passage) <= 0:
            own[at] = _union([other, passage])
            return tuple(own)
        if _grow(own, at, passage):
            return tuple(own)
    return (*others, passage)


def _grow(own: list[Passage], at: int, passage: Passage) -> bool:
    """Join a passage to the one at a position, if the result is one text that is not too long.

    Passages that the result would contain are joined to it, and those of its unit that it touches.
    """
    if _distance(own[at], passage) > _FARTHEST:
        return False
    grown = _union([own[at], passage])
    parts = [draft for draft in own if draft is own[at] or _distance(draft, grown) <= 0]
    if len(parts) > 1:
        grown = _union([*parts, passage])
    if grown.tokens > PASSAGE_TOKENS or _shows_others(grown, own):
        return False
    for draft in own:
        if _distance(draft, grown) == 1 and _of_one_unit(draft, grown):
            longer = _union([grown, draft])
            grown = longer if longer.tokens <= PASSAGE_TOKENS else grown
    own[:] = [draft for draft in own if draft.ordinals.start not in grown.ordinals]
    insort(own, grown, key=lambda draft: draft.rank)
    return True


def _shows_others(grown: Passage, own: Sequence[Passage]) -> bool:
    """Return whether a chunk between those of a passage is an other match of a better one."""
    return any(
        other.ordinals.start in grown.ordinals
        for draft in own
        if draft.ordinals.start not in grown.ordinals
        for other in draft.others
    )


def _union(parts: Sequence[Passage]) -> Passage:
    """Return passages of one document as one, with the rank of the best."""
    best = min(parts, key=lambda part: part.rank)
    together = {chunk_id: place for part in parts for chunk_id, place in part.places.items()}
    in_order = sorted(together.items(), key=lambda pair: pair[1].ordinal)
    return Passage(best.best, best.rank, dict(in_order), _by_rank(*(part.others for part in parts)))


def _distance(passage: Passage, other: Passage) -> int:
    """Difference of the nearest ordinals of two passages; at most 0 if they overlap."""
    first, second = passage.ordinals, other.ordinals
    if second.start < first.start:
        first, second = second, first
    return second.start - first[-1]


def _by_rank(*groups: Iterable[Passage]) -> tuple[Passage, ...]:
    return tuple(sorted(chain(*groups), key=lambda passage: passage.rank))


def _of_one_function(passage: Passage, other: Passage) -> bool:
    """Return whether both have code of the same unit by its name."""
    return not passage.names.isdisjoint(other.names)


def _of_one_unit(passage: Passage, other: Passage) -> bool:
    """Return whether both are of one class, or of one section, in the text and not in examples."""
    first, second = next(iter(passage.places.values())), next(iter(other.places.values()))
    if first.is_example or second.is_example or first.is_code != second.is_code:
        return False
    if first.is_code:
        return not passage.scopes.isdisjoint(other.scopes)
    return (first.symbol, first.heading_path) == (second.symbol, second.heading_path)


@lru_cache(_MOST_CACHED)
def _names_of(symbol: str | None) -> frozenset[str]:
    return frozenset(symbols_of(symbol))


@lru_cache(_MOST_CACHED)
def _scopes_of(symbol: str | None) -> frozenset[str]:
    names = _names_of(symbol)
    owners = [owners_of(name)[-1:] for name in names]
    return names.union([owner for around in owners for owner, _ in around])


def _grouped(own: Sequence[Passage]) -> Passage:
    """Return the best passage of a document, with all others as other matches."""
    best, *rest = own
    return replace(best, others=_by_rank(best.others, *((other, *other.others) for other in rest)))
