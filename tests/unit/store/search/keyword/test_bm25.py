import math
import random
from collections import Counter

import numpy as np
import pytest

from store.search.keyword.bm25 import K1, B, Matches, ScoredChunks, Segment, TermHits, score
from store.search.keyword.postings import Postings, term_hash

Rows = list[tuple[int, list[str]]]


def zipf_rows(seed: int, chunks: int) -> Rows:
    rng = random.Random(seed)
    return [
        (i, [f"w{int(rng.paretovariate(0.7)) % 5000}" for _ in range(rng.randrange(5, 200))])
        for i in range(chunks)
    ]


def oracle(rows: Rows, query: list[str]) -> dict[int, float]:
    """BM25 in plain floats, by the textbook formula."""
    mean = sum(len(terms) for _, terms in rows) / len(rows)
    counted = [(chunk_id, Counter(terms), len(terms)) for chunk_id, terms in rows]
    scores: dict[int, float] = {}
    for term, repeated in Counter(query).items():
        frequency = sum(term in counts for _, counts, _ in counted)
        idf = math.log(1 + (len(rows) - frequency + 0.5) / (frequency + 0.5))
        for chunk_id, counts, length in counted:
            if count := counts[term]:
                part = count * (K1 + 1) / (count + K1 * (1 - B + B * length / mean))
                scores[chunk_id] = scores.get(chunk_id, 0.0) + repeated * idf * part
    return scores


def matches(rows: Rows, query: list[str], sizes: list[int], small: int) -> Matches:
    """Matches of rows in segments; those up to ``small`` chunks hold their postings inline."""
    segments, hits, start = [], [], 0
    for size in sizes:
        postings = Postings.build(rows[start : start + size])
        start += size
        inline = postings if size <= small else None
        segments.append(Segment(postings.chunk_ids, postings.lengths, inline))
        found = {term_hash(term): postings.find(term_hash(term)) for term in set(query)}
        hits.append([TermHits(term, *hit) for term, hit in found.items() if hit is not None])
    assert start == len(rows)
    return Matches(segments, hits, sum(len(terms) for _, terms in rows))


@pytest.mark.parametrize("sizes", [[3000], [1, 2, 30, 967, 2000], [20] * 150])
def test_scores_equal_bm25_in_floats(sizes: list[int]) -> None:
    """Scores equal BM25 for any division into segments."""
    rows = zipf_rows(5, 3000)
    query = ["w1", "w2", "w2", "w17", "w400", "absent"]
    weights = {term_hash(term): float(n) for term, n in Counter(query).items()}
    wanted = oracle(rows, query)
    ranked = score(matches(rows, query, sizes, small=50), weights).best(len(rows))
    assert dict(ranked) == pytest.approx(wanted, rel=1e-5)
    best = sorted(wanted, key=lambda chunk_id: -wanted[chunk_id])[:30]
    assert len(set(best) & {chunk_id for chunk_id, _ in ranked[:30]}) >= 29


def test_weights_multiply_a_term() -> None:
    """Half the weight of a term gives half the score."""
    rows = zipf_rows(6, 200)
    matched = matches(rows, ["w3"], [200], small=0)
    whole = dict(score(matched, {term_hash("w3"): 1.0}).best(10))
    half = dict(score(matched, {term_hash("w3"): 0.5}).best(10))
    assert half == pytest.approx({chunk_id: value / 2 for chunk_id, value in whole.items()})


@pytest.mark.parametrize("limit", [1, 7, 100, 70_000])
def test_the_best_of_many_are_the_best(limit: int) -> None:
    """The best chunks are the same as after a full sort."""
    scores = np.random.default_rng(1).random(60_001, np.float32)
    scores[scores < 0.5] = 0
    ids = np.arange(60_001, dtype=np.int64) * 2
    order = np.lexsort((ids, -scores))
    wanted = [int(ids[i]) for i in order if scores[i] > 0][:limit]
    assert [chunk_id for chunk_id, _ in ScoredChunks([(ids, scores)]).best(limit)] == wanted


def test_equal_scores_go_by_id() -> None:
    """Equal scores are ordered by chunk id."""
    ids = np.arange(60_000, dtype=np.int64)[::-1].copy()
    scored = ScoredChunks([(ids, np.ones(60_000, np.float32))])
    assert [chunk_id for chunk_id, _ in scored.best(3)] == [0, 1, 2]


def test_the_best_of_some_are_among_them() -> None:
    """A restriction to some chunks keeps their order."""
    ids = np.arange(6, dtype=np.int64)
    scored = ScoredChunks([(ids, np.array([0, 5, 4, 3, 2, 1], np.float32))])
    assert scored.best_of([0, 4, 2, 99], 10) == [(2, 4.0), (4, 2.0)]


def test_nothing_matches_nothing() -> None:
    """A search without segments or without known terms has no results."""
    assert score(Matches([], [], 0), {}).best(5) == []
    rows = zipf_rows(1, 10)
    assert (
        score(matches(rows, ["absent"], [10], small=50), {term_hash("absent"): 1.0}).best(5) == []
    )
