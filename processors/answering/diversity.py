"""Maximal marginal relevance: results that differ from those above them come earlier.

After Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking for Reordering Documents
and Producing Summaries", 1998. It can only lower relevance, so it is off unless a question asks
for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from events.models import Query
from processors.answering.fusion import Fused
from runtime.traces import staged
from store.generations.catalog import Generation
from store.search.search import Search

__all__ = ["DIVERSE_CHUNKS", "diversified", "diversified_chunks"]

DIVERSE_CHUNKS = 50
"""Number of the best chunks that are put into another order; the rest stays behind them."""

Item = TypeVar("Item")
StoredVector = tuple[int, npt.NDArray[np.float32]]


@staged("diversify")
async def diversified_chunks(
    search: Search, generation: Generation, query: Query, ranked: Sequence[Fused]
) -> list[Fused]:
    """Put the best chunks into the order of their marginal relevance, by their stored vectors.

    If the best were reranked, the others are not comparable with them, and stay behind.
    """
    reranked = [chunk for chunk in ranked if chunk.reranked is not None]
    best = (reranked or ranked)[:DIVERSE_CHUNKS]
    stored = await search.vectors(generation, query.agent, [chunk.chunk_id for chunk in best])
    vectors = [stored.get(chunk.chunk_id) for chunk in best]
    scores = [chunk.score if chunk.reranked is None else chunk.reranked for chunk in best]
    return [*diversified(best, scores, vectors, query.diversity), *ranked[len(best) :]]


def diversified(
    ranked: Sequence[Item],
    relevance: Sequence[float],
    vectors: Sequence[StoredVector | None],
    diversity: float,
) -> list[Item]:
    """Return items, best first, in the order of their marginal relevance.

    Each next item has the highest ``(1 - diversity) * relevance - diversity * similarity``, where
    similarity is the largest cosine to an item before it. Relevance is scaled to 0 … 1. The first
    item stays the first.

    Args:
        ranked: the items, best first.
        relevance: the score of each.
        vectors: model id and unit vector of each, or None. Items of different models, and those
            without a vector, count as not similar.
        diversity: 0 keeps the order, and 1 ignores relevance.
    """
    if len(ranked) < 2 or diversity == 0:
        return list(ranked)
    similarity = _similarities(vectors)
    scaled = _scaled(np.array(relevance, dtype=np.float64))
    order = [0]
    remaining = list(range(1, len(ranked)))
    nearest = similarity[0].copy()
    while remaining:
        marginal = (1 - diversity) * scaled[remaining] - diversity * nearest[remaining]
        chosen = remaining.pop(int(np.argmax(marginal)))
        order.append(chosen)
        np.maximum(nearest, similarity[chosen], out=nearest)
    return [ranked[at] for at in order]


def _scaled(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scores from 0 to 1; equal ones are 1."""
    spread = scores.max() - scores.min()
    return (scores - scores.min()) / spread if spread > 0 else np.ones_like(scores)


def _similarities(vectors: Sequence[StoredVector | None]) -> npt.NDArray[np.float64]:
    """Cosine of each pair of items of one model, and 0 for other pairs."""
    similarity = np.zeros((len(vectors), len(vectors)))
    by_model = {
        model: [at for at, stored in enumerate(vectors) if stored and stored[0] == model]
        for model in {stored[0] for stored in vectors if stored}
    }
    for rows in by_model.values():
        matrix = np.stack([stored[1] for at in rows if (stored := vectors[at])])
        similarity[np.ix_(rows, rows)] = matrix @ matrix.T
    return similarity
