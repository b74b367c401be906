"""Fusion of the candidates of several retrievers into one ranking.

Evidence adds up: a chunk's score is its cosine similarity plus its BM25 score times a fixed factor,
both as the retrievers report them. Raw scores show what ranks and scores scaled to [0, 1] hide:
that no chunk is similar, or that few words of the question occur. So a question with unspecific
words (low BM25 everywhere) is decided by its vector, one with a rare identifier by that word,
without any rule about questions. After Bruch, Gai and Ingber, "An Analysis of Fusion Functions for
Hybrid Retrieval", 2023, who show that a convex combination of scores beats reciprocal ranks and
needs little tuning; figures in docs/explanation/decisions/fusion.md.

A chunk that has no vector yet can be compared with others by words only. So it keeps its rank of
the keyword retriever, and the chunks with vectors fill the ranks between in fused order. These
ranks are few, so several chunks of one document would displace other documents. Therefore a
document's further chunks add to its score in proportion to coverage: nothing at 0, as in the
keyword retriever, everything at 1.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import starmap
from types import MappingProxyType
from typing import Literal, NamedTuple, overload

from events.models import Weights
from processors.answering.adjustments import Adjustment
from processors.answering.definitions import Promotion
from store.types import Candidates, ChunkPlace

__all__ = ["COSINE_PER_BM25", "DOCUMENT_SOFTNESS", "Fused", "Mode", "RankedScore", "fuse"]

Mode = Literal["hybrid", "vector", "keyword"]
Ranked = Sequence[tuple[int, float]]

COSINE_PER_BM25 = 0.0135
"""Cosine similarity that equals one point of BM25."""

DOCUMENT_SOFTNESS = 0.04
"""Distance to the best chunk of its document, in cosine, at which a chunk is further evidence."""


class RankedScore(NamedTuple):
    """Rank (from 1) and score of a chunk in one retriever."""

    rank: int
    score: float


class Fused(NamedTuple):
    """A chunk of the fused ranking, with its scores.

    ``score`` is comparable within one answer only. ``match_type`` names the retrievers that
    returned the chunk. ``defines``: the name of the question, if the chunk defines it. ``adjusted``
    are the reasons of the adjustment that ``score`` has, see ``adjustments``. ``reranked`` is its
    relevance by a reranker.
    """

    chunk_id: int
    score: float
    match_type: Literal["hybrid", "vector", "keyword"]
    vector: RankedScore | None
    keyword: RankedScore | None
    defines: str | None = None
    adjusted: tuple[str, ...] = ()
    reranked: float | None = None


def fuse(
    candidates: Candidates,
    *,
    mode: Mode,
    weights: Weights | None,
    limit: int,
    min_similarity: float | None = None,
    promotions: Mapping[int, Promotion] = {},
    adjustments: Mapping[int, Adjustment] = MappingProxyType({}),
    spreads: Mapping[str, float] = MappingProxyType({}),
) -> Sequence[Fused]:
    """Return the best ``limit`` chunks of the retrievers of ``mode``, best first, ties by id.

    ``weights`` scale the retrievers' scores: equal weights, or None, leave both as they are. In
    hybrid mode each pending chunk keeps its rank of the keyword retriever, and has a score between
    its neighbours'. If words have no weight, the pending chunks come last.

    ``min_similarity`` leaves out chunks of a lower or unknown cosine similarity; it changes neither
    the order nor the scores of the others.

    ``promotions`` of chunks are added to their scores in every mode. A chunk that no retriever
    returned counts as its last one. ``adjustments`` are added in hybrid mode, and only to the
    scores of chunks that have a vector. Then the chunks of each document of code exchange their
    scores, so that those of its best unit come first; promotions name the unit, and replace that.

    ``spreads`` are the spreads of each model's cosines, relative to those of all-MiniLM-L6-v2, by
    which the constants were chosen. A hybrid ranking divides cosines by them; a missing one is 1.
    """
    in_vectors = _ranks(candidates.vector.values()) if mode != "keyword" else {}
    in_words = _ranks([candidates.keyword]) if mode != "vector" else {}
    candidates = _in_common_unit(candidates, spreads if mode == "hybrid" else {})
    adjustments = _without(_pending(candidates), adjustments) if mode == "hybrid" else {}
    ranked = _ranked(candidates, mode, weights, adjustments, by_units=not promotions)
    if promotions:
        ranked = _promoted(ranked, candidates, mode, promotions)
    if min_similarity is not None:
        cosines = {chunk_id: score for chunk_id, (_, score) in in_vectors.items()}
        cosines |= candidates.compared
        ranked = [pair for pair in ranked if cosines.get(pair[0], -math.inf) >= min_similarity]
    return _Ranking(ranked[:limit], in_vectors, in_words, promotions, adjustments)


def _without(pending: Set[int], adjustments: Mapping[int, Adjustment]) -> Mapping[int, Adjustment]:
    if not pending:
        return adjustments
    return {key: adjustment for key, adjustment in adjustments.items() if key not in pending}


class _Ranking(Sequence[Fused]):
    """A fused ranking. Most of its chunks are not shown, so each is made when it is read."""

    def __init__(
        self,
        ranked: Ranked,
        in_vectors: Mapping[int, tuple[int, float]],
        in_words: Mapping[int, tuple[int, float]],
        promotions: Mapping[int, Promotion],
        adjustments: Mapping[int, Adjustment],
    ) -> None:
        self._ranked = ranked
        self._in_vectors = in_vectors
        self._in_words = in_words
        self._promotions = promotions
        self._adjustments = adjustments

    def __len__(self) -> int:
        return len(self._ranked)

    @overload
    def __getitem__(self, index: int) -> Fused: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Fused]: ...

    def __getitem__(self, index: int | slice) -> Fused | Sequence[Fused]:
        if isinstance(index, slice):
            return [self._fused(*pair) for pair in self._ranked[index]]
        return self._fused(*self._ranked[index])

    def __iter__(self) -> Iterator[Fused]:
        return starmap(self._fused, self._ranked)

    def _fused(self, chunk_id: int, score: float) -> Fused:
        vector, keyword = self._in_vectors.get(chunk_id), self._in_words.get(chunk_id)
        promotion = self._promotions.get(chunk_id)
        adjustment = self._adjustments.get(chunk_id)
        return Fused(
            chunk_id,
            score,
            _match_type(vector is not None, keyword is not None),
            None if vector is None else RankedScore(*vector),
            None if keyword is None else RankedScore(*keyword),
            None if promotion is None else promotion.defines,
            () if adjustment is None else adjustment.reasons,
        )


def _in_common_unit(candidates: Candidates, spreads: Mapping[str, float]) -> Candidates:
    """Candidates whose cosines are comparable with those of all-MiniLM-L6-v2."""
    if not candidates.vector.keys() & spreads.keys():
        return candidates
    vector = {
        model: [(chunk_id, score / spreads.get(model, 1.0)) for chunk_id, score in ranked]
        for model, ranked in candidates.vector.items()
    }
    return replace(candidates, vector=vector)


def _ranked(
    candidates: Candidates,
    mode: Mode,
    weights: Weights | None,
    adjustments: Mapping[int, Adjustment],
    *,
    by_units: bool,
) -> Ranked:
    """Rank chunks with their scores; in a mode with one retriever, these are its own scores."""
    if mode == "keyword":
        return _best_first(dict(candidates.keyword))
    if mode == "vector":
        return _best_first(_similarities(candidates.vector.values(), []))
    return _hybrid(candidates, *_factors(weights), adjustments, by_units=by_units)


def _promoted(
    ranked: Ranked, candidates: Candidates, mode: Mode, promotions: Mapping[int, Promotion]
) -> Ranked:
    """Add promotions to scores; in vector mode only to those of chunks that have a vector."""
    lowest = ranked[-1][1] if ranked else 0.0
    scores = dict(ranked)
    for chunk_id in promotions.keys() - scores.keys():
        if mode != "vector":
            scores[chunk_id] = lowest
        elif chunk_id in candidates.compared:
            scores[chunk_id] = candidates.compared[chunk_id]
    unit = 1 / COSINE_PER_BM25 if mode == "keyword" else 1.0
    for chunk_id in promotions.keys() & scores.keys():
        scores[chunk_id] += unit * promotions[chunk_id].bonus
    order = {chunk_id: rank for rank, (chunk_id, _) in enumerate(ranked)}
    return sorted(
        scores.items(), key=lambda pair: (-pair[1], order.get(pair[0], len(order)), pair[0])
    )


def _hybrid(
    candidates: Candidates,
    by_vector: float,
    by_keyword: float,
    adjustments: Mapping[int, Adjustment],
    *,
    by_units: bool,
) -> Ranked:
    """Rank chunks with vectors in fused order, and pending ones at their keyword ranks."""
    scores = _fused_scores(candidates, by_vector, by_keyword)
    pending = _pending(candidates)
    complete = scores
    if pending:
        complete = {key: score for key, score in scores.items() if key not in pending}
    together = _with_documents(complete, candidates.documents, candidates.coverage)
    adjusted = dict(together)
    for chunk_id, adjustment in adjustments.items():
        if chunk_id in adjusted:
            adjusted[chunk_id] += adjustment.bonus
    if adjustments and by_units:
        adjusted |= _ordered_by_units(together, adjusted, adjustments, candidates.places)
    fused = _best_first(adjusted)
    if not pending:
        return fused
    ranking = [chunk_id for chunk_id, _ in _best_first(dict(candidates.keyword))]
    if not by_keyword:
        ranking = [*complete, *(chunk_id for chunk_id in ranking if chunk_id in pending)]
    return _interleave(ranking, fused, {chunk_id: scores[chunk_id] for chunk_id in pending})


def _fused_scores(candidates: Candidates, by_vector: float, by_keyword: float) -> dict[int, float]:
    """Add weighted similarity and weighted BM25 of each candidate, ignoring documents."""
    similarities = _similarities(candidates.vector.values(), candidates.keyword)
    longest = max((len(ranked) for ranked in candidates.vector.values()), default=0)
    matches = _matches(candidates.keyword, complete_length=longest)
    by_match = by_keyword * COSINE_PER_BM25
    scores = {chunk_id: by_vector * cosine for chunk_id, cosine in similarities.items()}
    for chunk_id, match in matches.items():
        scores[chunk_id] = scores.get(chunk_id, 0.0) + by_match * match
    return scores


def _pending(candidates: Candidates) -> set[int]:
    """Return the keyword candidates without a vector.

    The retrievers may use different snapshots: a chunk with a similarity is not pending.
    """
    keyword_ids = {chunk_id for chunk_id, _ in candidates.keyword}
    vector_ids = {chunk_id for ranked in candidates.vector.values() for chunk_id, _ in ranked}
    return (keyword_ids & candidates.pending) - vector_ids


def _interleave(ranking: Sequence[int], fused: Ranked, pending: Mapping[int, float]) -> Ranked:
    """Keep the pending chunks of ``ranking`` at their ranks and fill the others from ``fused``.

    A pending chunk's own score does not include similarity, so it is limited to the range between
    its neighbours' scores: scores never rise along the ranking.
    """
    remaining = deque(fused)
    ranked: list[tuple[int, float]] = []
    for chunk_id in ranking:
        if chunk_id in pending:
            highest = ranked[-1][1] if ranked else math.inf
            lowest = remaining[0][1] if remaining else -math.inf
            ranked.append((chunk_id, min(highest, max(lowest, pending[chunk_id]))))
        else:
            ranked.append(remaining.popleft())
    return [*ranked, *remaining]


def _best_first(scores: Mapping[int, float]) -> Ranked:
    ranking = sorted(scores)
    ranking.sort(key=scores.__getitem__, reverse=True)  # equal scores stay in the order of ids
    return [(chunk_id, scores[chunk_id]) for chunk_id in ranking]


def _factors(weights: Weights | None) -> tuple[float, float]:
    """Factor of each retriever; they sum to 2, so that equal weights are factors of 1."""
    if weights is None:
        return 1.0, 1.0
    total = weights.vector + weights.keyword
    return 2 * weights.vector / total, 2 * weights.keyword / total


def _ranks(rankings: Iterable[Ranked]) -> dict[int, tuple[int, float]]:
    """Rank and score of each chunk by its retriever; a chunk is embedded by one model only."""
    return {
        chunk_id: (rank, score)
        for ranked in rankings
        for rank, (chunk_id, score) in enumerate(ranked, start=1)
    }


def _similarities(rankings: Collection[Ranked], others: Ranked) -> dict[int, float]:
    """Cosine above the lowest of the same model's candidates, as models differ in their range.

    If a single model returned all of the ``others`` too, it is the cosine itself: the order is the
    same, and the score of a single answer is meaningful.
    """
    cosines = {chunk_id: score for ranked in rankings for chunk_id, score in ranked}
    if len(rankings) == 1 and all(chunk_id in cosines for chunk_id, _ in others):
        return cosines
    return {
        chunk_id: excess
        for ranked in rankings
        if ranked
        for chunk_id, excess in _excess(ranked, ranked[-1][1]).items()
    }


def _excess(ranked: Ranked, floor: float) -> dict[int, float]:
    return {chunk_id: score - floor for chunk_id, score in ranked}


def _matches(ranked: Ranked, complete_length: int) -> dict[int, float]:
    """BM25 above the highest score that a chunk outside of the candidates can have.

    That is the lowest score if the retriever's list was cut off, and 0 if it has fewer than
    ``complete_length`` chunks: then it contains every chunk with any word of the question.
    """
    is_cut_off = 0 < complete_length <= len(ranked)
    return _excess(ranked, ranked[-1][1] if is_cut_off else 0.0)


def _with_documents(
    scores: Mapping[int, float], documents: Mapping[int, int], share: float
) -> dict[int, float]:
    """Add to each score a share of the evidence of the document's other candidates.

    The share is equal for all chunks of a document. A document's evidence is the softened maximum
    of its chunks' scores (log-sum-exp), so that a second chunk counts if it is nearly as good as
    the best, and a long document gains nothing by its length.
    """
    by_document: defaultdict[int, list[int]] = defaultdict(list)
    for chunk_id in scores:
        by_document[documents.get(chunk_id, -chunk_id)].append(chunk_id)
    together = dict(scores)
    for chunk_ids in by_document.values():
        if len(chunk_ids) > 1:
            of_chunks = [scores[chunk_id] for chunk_id in chunk_ids]
            best = max(of_chunks)
            bonus = share * (_evidence(of_chunks, best) - best)
            for chunk_id in chunk_ids:
                together[chunk_id] += bonus
    return together


def _evidence(scores: Sequence[float], best: float) -> float:
    spread = sum([math.exp((score - best) / DOCUMENT_SOFTNESS) for score in scores])
    return best + DOCUMENT_SOFTNESS * math.log(spread)


def _ordered_by_units(
    scores: Mapping[int, float],
    adjusted: Mapping[int, float],
    adjustments: Mapping[int, Adjustment],
    places: Mapping[int, ChunkPlace],
) -> dict[int, float]:
    """Exchange the adjusted scores within each document of code, so that its best unit is first.

    Scores only change places within a document, so documents rank as before.
    """
    by_document: defaultdict[int, list[int]] = defaultdict(list)
    for chunk_id, place in places.items():
        if place.is_code and chunk_id in adjusted:
            by_document[place.document_id].append(chunk_id)
    exchanged: dict[int, float] = {}
    for chunk_ids in by_document.values():
        if len(chunk_ids) > 1:
            of_units = _unit_scores(chunk_ids, scores, adjustments, places)
            chunk_ids.sort()
            chunk_ids.sort(key=adjusted.__getitem__, reverse=True)
            best_first = [adjusted[chunk_id] for chunk_id in chunk_ids]
            chunk_ids.sort(key=of_units.__getitem__, reverse=True)  # ties stay in this order
            exchanged.update(zip(chunk_ids, best_first, strict=True))
    return exchanged


def _unit_scores(
    chunk_ids: Sequence[int],
    scores: Mapping[int, float],
    adjustments: Mapping[int, Adjustment],
    places: Mapping[int, ChunkPlace],
) -> dict[int, float]:
    """Score of the unit of each chunk of a document.

    A unit has the evidence of all its chunks: the highest score and the highest adjustment. A chunk
    of several units, or of none, stands for itself.
    """
    units: dict[int, int | str] = {}
    highest: dict[int | str, float] = {}
    bonuses: dict[int | str, float] = {}
    for chunk_id in chunk_ids:
        symbol = places[chunk_id].symbol
        units[chunk_id] = unit = symbol if symbol and ", " not in symbol else chunk_id
        bonus = sum(adjustments.get(chunk_id, ()))
        score = scores[chunk_id]
        if unit not in highest:
            highest[unit], bonuses[unit] = score, bonus
            continue
        highest[unit] = max(highest[unit], score)
        bonuses[unit] = max(bonuses[unit], bonus)
    return {chunk_id: highest[unit] + bonuses[unit] for chunk_id, unit in units.items()}


def _match_type(by_vector: bool, by_keyword: bool) -> Literal["hybrid", "vector", "keyword"]:
    if by_vector and by_keyword:
        return "hybrid"
    return "vector" if by_vector else "keyword"
