"""One ranking out of several legs' candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from events.models import LegScore, Weights
from store.types import Candidates

__all__ = ["Fused", "Mode", "fuse"]

Mode = Literal["hybrid", "vector", "keyword"]
Ranked = Sequence[tuple[int, float]]

VECTOR_WEIGHT = 0.6


@dataclass(frozen=True, slots=True)
class Fused:
    """A chunk's place in the fused ranking, with what put it there.

    ``score`` is comparable within one answer only. ``match_type`` names the legs that found it.
    """

    chunk_id: int
    score: float
    match_type: Literal["hybrid", "vector", "keyword"]
    vector: LegScore | None
    keyword: LegScore | None


def fuse(
    query_text: str,
    candidates: Candidates,
    *,
    mode: Mode,
    weights: Weights | None,
    limit: int,
) -> list[Fused]:
    """The best ``limit`` chunks of the legs that ``mode`` names, best first, equal ones by id."""
    vector = _best_places(candidates.vector) if mode != "keyword" else {}
    keyword = _places(candidates.keyword) if mode != "vector" else {}
    share = _vector_share(weights)
    by_vector, by_keyword = _normalised(vector), _normalised(keyword)
    fused = [
        Fused(
            chunk_id=chunk_id,
            score=share * by_vector.get(chunk_id, 0.0)
            + (1 - share) * by_keyword.get(chunk_id, 0.0),
            match_type=_match_type(chunk_id in vector, chunk_id in keyword),
            vector=vector.get(chunk_id),
            keyword=keyword.get(chunk_id),
        )
        for chunk_id in vector.keys() | keyword.keys()
    ]
    return sorted(fused, key=lambda one: (-one.score, one.chunk_id))[:limit]


def _vector_share(weights: Weights | None) -> float:
    if weights is None:
        return VECTOR_WEIGHT
    return weights.vector / (weights.vector + weights.keyword)


def _places(ranked: Ranked) -> dict[int, LegScore]:
    return {
        chunk_id: LegScore(rank=rank, score=score)
        for rank, (chunk_id, score) in enumerate(ranked, start=1)
    }


def _best_places(legs: Mapping[str, Ranked]) -> dict[int, LegScore]:
    """Each chunk's place among its own model's; a chunk has a vector by one model only."""
    return {chunk_id: place for leg in legs.values() for chunk_id, place in _places(leg).items()}


def _normalised(places: Mapping[int, LegScore]) -> dict[int, float]:
    """Scores stretched to [0, 1] over the candidates of a leg."""
    if not places:
        return {}
    low = min(place.score for place in places.values())
    high = max(place.score for place in places.values())
    spread = high - low or 1.0
    return {chunk_id: (place.score - low) / spread for chunk_id, place in places.items()}


def _match_type(by_vector: bool, by_keyword: bool) -> Literal["hybrid", "vector", "keyword"]:
    if by_vector and by_keyword:
        return "hybrid"
    return "vector" if by_vector else "keyword"
