"""How two rankings become one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.models import Weights
from processors.answering.fuse import COSINE_PER_BM25, Fused, Mode, fuse
from store.types import Candidates

VECTOR = [(1, 0.8), (2, 0.5), (3, 0.3)]
KEYWORD = [(4, 20.0), (2, 12.0), (5, 4.0)]


def found(
    vector: list[tuple[int, float]] = VECTOR,
    keyword: list[tuple[int, float]] = KEYWORD,
    documents: dict[int, int] | None = None,
) -> Candidates:
    return Candidates({"model": vector}, keyword, documents=documents or {})


def ranked(
    candidates: Candidates, mode: Mode = "hybrid", weights: Weights | None = None, limit: int = 10
) -> list[Fused]:
    return fuse(candidates, mode=mode, weights=weights, limit=limit)


def ids(results: list[Fused]) -> list[int]:
    return [one.chunk_id for one in results]


def test_evidence_of_both_legs_adds_up() -> None:
    """A chunk's score is what each leg gives it above its floor, BM25 scaled to cosine."""
    scores = {one.chunk_id: one.score for one in ranked(found())}
    assert scores[2] == pytest.approx((0.5 - 0.3) + COSINE_PER_BM25 * (12 - 4))
    assert scores[4] == pytest.approx(COSINE_PER_BM25 * (20 - 4))


def test_each_result_tells_its_legs() -> None:
    """Ranks and raw scores are those of the legs, and the match type names the legs."""
    by_id = {one.chunk_id: one for one in ranked(found())}
    assert {key: one.match_type for key, one in by_id.items()} == {
        1: "vector",
        2: "hybrid",
        3: "vector",
        4: "keyword",
        5: "keyword",
    }
    both = by_id[2]
    assert both.vector is not None
    assert both.keyword is not None
    assert (both.vector.rank, both.vector.score) == (2, 0.5)
    assert (both.keyword.rank, both.keyword.score) == (2, 12.0)


def test_a_lone_answer_has_a_score() -> None:
    """Where nothing lies outside of the vector leg, its cosine counts as it is."""
    [only] = ranked(found([(1, 0.7)], [(1, 4.0)]))
    assert only.score == pytest.approx(0.7 + COSINE_PER_BM25 * (4.0 - 4.0))


@given(st.dictionaries(st.integers(1, 30), st.floats(0, 1), min_size=2))
def test_the_floor_changes_no_order_when_nothing_lies_outside(cosines: dict[int, float]) -> None:
    """A chunk that only the keyword leg names, far below all others, brings the floor in."""
    vector = sorted(cosines.items(), key=lambda pair: (-pair[1], pair[0]))
    inside = ranked(found(vector, [(vector[0][0], 1.0)]), limit=100)
    outside = ranked(found(vector, [(vector[0][0], 1.0), (99, 1.0)]), limit=100)
    assert ids(inside) == [one for one in ids(outside) if one != 99]


def test_one_leg_alone_keeps_its_order() -> None:
    """Asking for one leg gives that leg's ranking, whatever documents say."""
    documents = dict.fromkeys(range(1, 6), 7)
    assert ids(ranked(found(documents=documents), "vector")) == [1, 2, 3]
    assert ids(ranked(found(documents=documents), "keyword")) == [4, 2, 5]


def test_weights_are_respected() -> None:
    """All weight on a leg makes its order win."""
    only_vector = Weights(vector=1, keyword=0)
    only_keyword = Weights(vector=0, keyword=1)
    assert ids(ranked(found(), weights=only_vector))[:2] == [1, 2]
    assert ids(ranked(found(), weights=only_keyword))[:2] == [4, 2]


def test_equal_weights_are_the_default() -> None:
    """Naming equal weights changes nothing."""
    assert ranked(found(), weights=Weights(vector=0.3, keyword=0.3)) == ranked(found())


def test_a_rare_word_found_once_counts_in_full() -> None:
    """A keyword leg with a single hit has been exhausted: its score is measured from 0."""
    results = ranked(found(keyword=[(9, 40.0)]))
    assert {one.chunk_id: one.score for one in results}[9] == pytest.approx(40 * COSINE_PER_BM25)


def test_a_second_good_chunk_lifts_its_document() -> None:
    """Of two equal chunks, that one is first whose document has another good chunk."""
    vector = [(1, 0.6), (2, 0.6), (3, 0.55), (4, 0.1)]
    documents = {1: 100, 2: 200, 3: 200, 4: 400}
    assert ids(ranked(found(vector, [], documents)))[0] == 2


def test_many_weak_chunks_lift_nothing() -> None:
    """A long document gains nothing from chunks that are far from its best."""
    weak = [(chunk_id, 0.2) for chunk_id in range(10, 40)]
    documents = {1: 100, 2: 200, **dict.fromkeys(range(10, 40), 200)}
    assert ids(ranked(found([(1, 0.62), (2, 0.6), *weak], [], documents)))[0] == 1


def test_models_are_compared_above_their_own_floor() -> None:
    """A model whose cosines are all high doesn't push the other's chunks away."""
    high = [(1, 0.90), (2, 0.89), (3, 0.88)]
    low = [(4, 0.50), (5, 0.20), (6, 0.10)]
    results = ranked(Candidates({"high": high, "low": low}, []))
    assert ids(results)[0] == 4


def test_nothing_found_is_nothing_fused() -> None:
    """Empty legs give an empty ranking."""
    for mode in ("hybrid", "vector", "keyword"):
        assert ranked(Candidates({}, []), mode) == []


def test_a_failed_vector_leg_leaves_the_keyword_order() -> None:
    """With one leg down, a hybrid ranking is the other leg's."""
    assert ids(ranked(Candidates({}, KEYWORD))) == [4, 2, 5]


scores = st.dictionaries(st.integers(1, 50), st.floats(0, 1, allow_nan=False), max_size=30).map(
    lambda found: sorted(found.items(), key=lambda one: -one[1])
)


@given(scores, scores, st.integers(1, 40))
def test_fusing_is_deterministic_and_complete(
    vector: list[tuple[int, float]], keyword: list[tuple[int, float]], limit: int
) -> None:
    """Every candidate is ranked once, best first, equal ones by id."""
    results = ranked(found(vector, keyword), limit=limit)
    assert len(results) == min(limit, len({key for key, _ in [*vector, *keyword]}))
    order = [(-one.score, one.chunk_id) for one in results]
    assert order == sorted(set(order))
