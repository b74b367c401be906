"""One ranking out of several legs' candidates.

Evidence adds up: a chunk's score is its cosine similarity plus its BM25 score times a fixed factor,
both as the legs report them. Raw scores carry what ranks and scores stretched to [0, 1] lose: that
no chunk is similar, or that few words of the question occur. So a question whose words say little
(low BM25 everywhere) is decided by its vector, one with a rare identifier by that, with no rule
about questions. After Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid
Retrieval", 2023, who show that a convex combination of scores beats reciprocal ranks and needs
little tuning; figures in docs/decisions/fusion.md.

A chunk without a vector yet can be compared with others by words only. So it keeps the place that
the keyword leg gives it, and the chunks with vectors fill the places between in fused order. These
places are few, so several chunks of one document would take them from other documents: a document's
further chunks add in proportion to coverage, nothing at 0 as in the keyword leg, all at 1.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from events.models import LegScore, Weights
from store.types import Candidates

__all__ = ["COSINE_PER_BM25", "DOCUMENT_SOFTNESS", "Fused", "Mode", "fuse"]

Mode = Literal["hybrid", "vector", "keyword"]
Ranked = Sequence[tuple[int, float]]

COSINE_PER_BM25 = 0.0135
"""How much cosine similarity one point of BM25 is worth."""

DOCUMENT_SOFTNESS = 0.04
"""How near to its document's best a chunk must come, in cosine, to count as further evidence."""


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
    candidates: Candidates,
    *,
    mode: Mode,
    weights: Weights | None,
    limit: int,
) -> list[Fused]:
    """The best ``limit`` chunks of the legs that ``mode`` names, best first, equal ones by id.

    ``weights`` scale the legs: equal ones, or none, leave both as they are. In hybrid mode each
    pending chunk keeps its place in the keyword leg, and has a score between its neighbours'. If
    words have no weight, the pending chunks come last.
    """
    vector = _places(candidates.vector.values()) if mode != "keyword" else {}
    keyword = _places([candidates.keyword]) if mode != "vector" else {}
    ranked = _ranked(candidates, mode, weights)
    return [
        Fused(
            chunk_id=chunk_id,
            score=score,
            match_type=_match_type(chunk_id in vector, chunk_id in keyword),
            vector=vector.get(chunk_id),
            keyword=keyword.get(chunk_id),
        )
        for chunk_id, score in ranked[:limit]
    ]


def _ranked(candidates: Candidates, mode: Mode, weights: Weights | None) -> Ranked:
    """Chunks with their scores; where one leg was asked for, that leg's own."""
    if mode == "keyword":
        return _best_first(dict(candidates.keyword))
    if mode == "vector":
        return _best_first(_similarities(candidates.vector.values(), []))
    return _hybrid(candidates, *_factors(weights))


def _hybrid(candidates: Candidates, by_vector: float, by_keyword: float) -> Ranked:
    """Fused order of the chunks with vectors, with the pending ones at their keyword places."""
    scores = _summed(candidates, by_vector, by_keyword)
    pending = _pending(candidates)
    complete = {key: score for key, score in scores.items() if key not in pending}
    fused = _best_first(_with_documents(complete, candidates.documents, candidates.coverage))
    places = [chunk_id for chunk_id, _ in _best_first(dict(candidates.keyword))]
    if not by_keyword:
        places = [*complete, *(chunk_id for chunk_id in places if chunk_id in pending)]
    return _filled(places, fused, {chunk_id: scores[chunk_id] for chunk_id in pending})


def _summed(candidates: Candidates, by_vector: float, by_keyword: float) -> dict[int, float]:
    """Weighted similarity plus weighted BM25 of each candidate, documents left aside."""
    similar = _similarities(candidates.vector.values(), candidates.keyword)
    longest = max((len(ranked) for ranked in candidates.vector.values()), default=0)
    matching = _matches(candidates.keyword, full=longest)
    return {
        chunk_id: by_vector * similar.get(chunk_id, 0.0)
        + by_keyword * COSINE_PER_BM25 * matching.get(chunk_id, 0.0)
        for chunk_id in similar.keys() | matching.keys()
    }


def _pending(candidates: Candidates) -> set[int]:
    """Keyword candidates without a vector.

    The legs may see different moments: a chunk that the vector leg returned is not pending.
    """
    worded = {chunk_id for chunk_id, _ in candidates.keyword}
    similar = {chunk_id for ranked in candidates.vector.values() for chunk_id, _ in ranked}
    return (worded & candidates.pending) - similar


def _filled(places: Sequence[int], fused: Ranked, pending: Mapping[int, float]) -> Ranked:
    """``places`` with the pending chunks where they are and ``fused`` in the others, in order.

    A pending chunk's own score has no similarity in it, so it is limited to the range between its
    neighbours' scores: scores never rise along the ranking.
    """
    rest = deque(fused)
    ranked: list[tuple[int, float]] = []
    for chunk_id in places:
        if chunk_id in pending:
            highest = ranked[-1][1] if ranked else math.inf
            lowest = rest[0][1] if rest else -math.inf
            ranked.append((chunk_id, min(highest, max(lowest, pending[chunk_id]))))
        else:
            ranked.append(rest.popleft())
    return [*ranked, *rest]


def _best_first(scores: Mapping[int, float]) -> Ranked:
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def _factors(weights: Weights | None) -> tuple[float, float]:
    """Factor of each leg; they sum to 2, so that equal weights are factors of 1."""
    if weights is None:
        return 1.0, 1.0
    total = weights.vector + weights.keyword
    return 2 * weights.vector / total, 2 * weights.keyword / total


def _places(legs: Iterable[Ranked]) -> dict[int, LegScore]:
    """Place of each chunk in its leg; a chunk is embedded by one model only."""
    return {
        chunk_id: LegScore(rank=rank, score=score)
        for ranked in legs
        for rank, (chunk_id, score) in enumerate(ranked, start=1)
    }


def _similarities(legs: Collection[Ranked], others: Ranked) -> dict[int, float]:
    """Cosine above the lowest of the same model's candidates: models differ in what is low.

    The cosine itself where a single model named each of the ``others`` too: with nothing outside
    to compare with the order is the same, and a lone answer has a score that says something.
    """
    plain = {chunk_id: score for ranked in legs for chunk_id, score in ranked}
    if len(legs) == 1 and all(chunk_id in plain for chunk_id, _ in others):
        return plain
    return {
        chunk_id: above
        for ranked in legs
        if ranked
        for chunk_id, above in _above(ranked, ranked[-1][1]).items()
    }


def _above(ranked: Ranked, floor: float) -> dict[int, float]:
    return {chunk_id: score - floor for chunk_id, score in ranked}


def _matches(ranked: Ranked, full: int) -> dict[int, float]:
    """BM25 above what a chunk outside of the candidates can have.

    That is at most the lowest score if the leg was cut off, and 0 if it found fewer than ``full``
    chunks: then it has named every chunk with any word of the question.
    """
    cut_off = 0 < full <= len(ranked)
    return _above(ranked, ranked[-1][1] if cut_off else 0.0)


def _with_documents(
    scores: Mapping[int, float], documents: Mapping[int, int], share: float
) -> dict[int, float]:
    """Scores plus a share of what a document's other candidates add, equal for all of its chunks.

    A document's evidence is the softened maximum of its chunks' (log-sum-exp), so that a second
    chunk counts if it is nearly as good as the best, and a long document gains nothing by length.
    """
    by_document: dict[int, list[float]] = defaultdict(list)
    for chunk_id, score in scores.items():
        by_document[documents.get(chunk_id, -chunk_id)].append(score)
    added = {
        document: share * (_evidence(of_chunks) - max(of_chunks))
        for document, of_chunks in by_document.items()
    }
    return {
        chunk_id: score + added[documents.get(chunk_id, -chunk_id)]
        for chunk_id, score in scores.items()
    }


def _evidence(scores: Sequence[float]) -> float:
    best = max(scores)
    spread = sum(math.exp((score - best) / DOCUMENT_SOFTNESS) for score in scores)
    return best + DOCUMENT_SOFTNESS * math.log(spread)


def _match_type(by_vector: bool, by_keyword: bool) -> Literal["hybrid", "vector", "keyword"]:
    if by_vector and by_keyword:
        return "hybrid"
    return "vector" if by_vector else "keyword"
