"""Fusion of two rankings into one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from events.models import Weights
from processors.answering import fusion
from processors.answering.adjustments import Adjustment
from processors.answering.definitions import Promotion
from processors.answering.fusion import COSINE_PER_BM25, Fused, Mode
from store.types import Candidates, ChunkPlace

VECTOR = [(1, 0.8), (2, 0.5), (3, 0.3)]
KEYWORD = [(4, 20.0), (2, 12.0), (5, 4.0)]


def found(
    vector: list[tuple[int, float]] = VECTOR,
    keyword: list[tuple[int, float]] = KEYWORD,
    documents: dict[int, int] | None = None,
) -> Candidates:
    return Candidates({"model": vector}, keyword, documents=documents or {})


def fuse(candidates: Candidates, **options: Any) -> list[Fused]:
    """Fuse, and read the whole ranking."""
    return list(fusion.fuse(candidates, **options))


def ranked(
    candidates: Candidates, mode: Mode = "hybrid", weights: Weights | None = None, limit: int = 10
) -> list[Fused]:
    return fuse(candidates, mode=mode, weights=weights, limit=limit)


def ids(results: list[Fused]) -> list[int]:
    return [one.chunk_id for one in results]


def test_evidence_of_both_legs_adds_up() -> None:
    """A score adds each retriever's score above its floor, with BM25 scaled to cosine."""
    scores = {one.chunk_id: one.score for one in ranked(found())}
    assert scores[2] == pytest.approx((0.5 - 0.3) + COSINE_PER_BM25 * (12 - 4))
    assert scores[4] == pytest.approx(COSINE_PER_BM25 * (20 - 4))


def test_each_result_names_its_retrievers() -> None:
    """A result has the rank and raw score of each retriever, and a match type."""
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
    """The cosine of a single result counts without a floor."""
    [only] = ranked(found([(1, 0.7)], [(1, 4.0)]))
    assert only.score == pytest.approx(0.7 + COSINE_PER_BM25 * (4.0 - 4.0))


@given(st.dictionaries(st.integers(1, 30), st.floats(0, 1), min_size=2))
def test_the_floor_changes_no_order_when_nothing_lies_outside(cosines: dict[int, float]) -> None:
    """A chunk that only the keyword retriever finds brings in the floor and keeps the order."""
    vector = sorted(cosines.items(), key=lambda pair: (-pair[1], pair[0]))
    inside = ranked(found(vector, [(vector[0][0], 1.0)]), limit=100)
    outside = ranked(found(vector, [(vector[0][0], 1.0), (99, 1.0)]), limit=100)
    assert ids(inside) == [one for one in ids(outside) if one != 99]


def test_one_leg_alone_keeps_its_order() -> None:
    """A query in the mode of one retriever keeps that retriever's ranking."""
    documents = dict.fromkeys(range(1, 6), 7)
    assert ids(ranked(found(documents=documents), "vector")) == [1, 2, 3]
    assert ids(ranked(found(documents=documents), "keyword")) == [4, 2, 5]


def test_weights_are_respected() -> None:
    """All weight on one retriever gives its order."""
    only_vector = Weights(vector=1, keyword=0)
    only_keyword = Weights(vector=0, keyword=1)
    assert ids(ranked(found(), weights=only_vector))[:2] == [1, 2]
    assert ids(ranked(found(), weights=only_keyword))[:2] == [4, 2]


def test_equal_weights_are_the_default() -> None:
    """Equal weights give the same result as no weights."""
    assert ranked(found(), weights=Weights(vector=0.3, keyword=0.3)) == ranked(found())


def test_a_rare_word_found_once_counts_in_full() -> None:
    """The score of a single keyword hit is measured from 0."""
    results = ranked(found(keyword=[(9, 40.0)]))
    assert {one.chunk_id: one.score for one in results}[9] == pytest.approx(40 * COSINE_PER_BM25)


def test_a_second_good_chunk_lifts_its_document() -> None:
    """An equal chunk is first if its document has another good chunk."""
    vector = [(1, 0.6), (2, 0.6), (3, 0.55), (4, 0.1)]
    documents = {1: 100, 2: 200, 3: 200, 4: 400}
    assert ids(ranked(found(vector, [], documents)))[0] == 2


def test_many_weak_chunks_lift_nothing() -> None:
    """Chunks far below the best one do not raise the score of their document."""
    weak = [(chunk_id, 0.2) for chunk_id in range(10, 40)]
    documents = {1: 100, 2: 200, **dict.fromkeys(range(10, 40), 200)}
    assert ids(ranked(found([(1, 0.62), (2, 0.6), *weak], [], documents)))[0] == 1


def test_models_are_compared_above_their_own_floor() -> None:
    """Cosines are compared above the floor of their own model."""
    high = [(1, 0.90), (2, 0.89), (3, 0.88)]
    low = [(4, 0.50), (5, 0.20), (6, 0.10)]
    results = ranked(Candidates({"high": high, "low": low}, []))
    assert ids(results)[0] == 4


def test_nothing_found_is_nothing_fused() -> None:
    """Empty candidates give an empty ranking."""
    for mode in ("hybrid", "vector", "keyword"):
        assert ranked(Candidates({}, []), mode) == []


def test_a_failed_vector_leg_leaves_the_keyword_order() -> None:
    """Without the vector retriever a hybrid ranking equals the keyword ranking."""
    assert ids(ranked(Candidates({}, KEYWORD))) == [4, 2, 5]


scores = st.dictionaries(st.integers(1, 50), st.floats(0, 1, allow_nan=False), max_size=30).map(
    lambda found: sorted(found.items(), key=lambda one: -one[1])
)


@given(scores, scores, st.integers(1, 40))
def test_fusing_is_deterministic_and_complete(
    vector: list[tuple[int, float]], keyword: list[tuple[int, float]], limit: int
) -> None:
    """Every candidate is ranked once, best first, and equal scores by id."""
    results = ranked(found(vector, keyword), limit=limit)
    assert len(results) == min(limit, len({key for key, _ in [*vector, *keyword]}))
    order = [(-one.score, one.chunk_id) for one in results]
    assert order == sorted(set(order))


documents = st.dictionaries(st.integers(1, 50), st.integers(1, 10))
chunk_ids = st.frozensets(st.integers(1, 50))


@given(scores, documents, st.sampled_from([{}, {"model": []}]))
def test_without_vectors_the_answer_is_the_keyword_leg(
    keyword: list[tuple[int, float]],
    by_chunk: dict[int, int],
    vector: dict[str, list[tuple[int, float]]],
) -> None:
    """At coverage 0 a hybrid ranking has the order of the keyword retriever."""
    pending = frozenset(chunk_id for chunk_id, _ in keyword)
    candidates = Candidates(vector, keyword, documents=by_chunk, pending=pending, coverage=0.0)
    assert ids(ranked(candidates, limit=100)) == ids(ranked(candidates, "keyword", limit=100))


@given(scores, scores, documents, st.integers(51, 60))
def test_with_all_vectors_nothing_is_imputed(
    vector: list[tuple[int, float]],
    keyword: list[tuple[int, float]],
    by_chunk: dict[int, int],
    elsewhere: int,
) -> None:
    """A pending chunk that is not a candidate changes no rank and no score."""
    candidates = found(vector, keyword, by_chunk)
    beside = replace(candidates, pending=frozenset({elsewhere}), coverage=1.0)
    assert ranked(beside, limit=100) == ranked(candidates, limit=100)


@given(scores, scores, chunk_ids, documents)
def test_a_pending_chunk_keeps_its_keyword_place(
    vector: list[tuple[int, float]],
    keyword: list[tuple[int, float]],
    pending: frozenset[int],
    by_chunk: dict[int, int],
) -> None:
    """A pending chunk keeps its keyword rank, and scores never rise along the ranking."""
    unseen = [pair for pair in vector if pair[0] not in pending]
    candidates = replace(found(unseen, keyword, by_chunk), pending=pending)
    results = ranked(candidates, limit=100)
    words = ids(ranked(candidates, "keyword", limit=100))
    waiting = pending & set(words)
    assert {key: ids(results).index(key) for key in waiting} == {
        key: words.index(key) for key in waiting
    }
    assert [one.score for one in results] == sorted((one.score for one in results), reverse=True)


@given(scores, scores, chunk_ids)
def test_pending_chunks_leave_the_order_of_the_others(
    vector: list[tuple[int, float]], keyword: list[tuple[int, float]], pending: frozenset[int]
) -> None:
    """Pending chunks do not change the order of the chunks with vectors."""
    candidates = found([pair for pair in vector if pair[0] not in pending], keyword)
    everything = ids(ranked(candidates, limit=100))
    waiting = ids(ranked(replace(candidates, pending=pending), limit=100))
    assert [key for key in waiting if key not in pending] == [
        key for key in everything if key not in pending
    ]


@given(st.floats(0, 1))
def test_further_chunks_add_in_proportion_to_coverage(coverage: float) -> None:
    """A document's further chunks count in proportion to coverage."""
    whole = found([(1, 0.6), (2, 0.59), (3, 0.1)], [], {1: 100, 2: 100, 3: 300})
    plain, full, partly = (
        ranked(replace(whole, coverage=share))[0].score for share in (0.0, 1.0, coverage)
    )
    assert plain == pytest.approx(0.6)
    assert full > plain
    assert partly - plain == pytest.approx(coverage * (full - plain))


def test_vectors_sort_the_places_between_pending_chunks() -> None:
    """Pending chunks keep ranks 1 and 3; similarity decides the others."""
    keyword = [(4, 20.0), (2, 12.0), (5, 4.0)]
    candidates = replace(found([(1, 0.8), (2, 0.5)], keyword), pending=frozenset({4, 5}))
    results = ranked(candidates)
    assert ids(results) == [4, 1, 5, 2]
    assert [one.match_type for one in results] == ["keyword", "vector", "keyword", "hybrid"]


def test_pending_chunks_come_last_where_words_have_no_weight() -> None:
    """Pending chunks are last if the query gives keywords no weight."""
    candidates = replace(found(), pending=frozenset({4}))
    assert ids(ranked(candidates, weights=Weights(vector=1, keyword=0))) == [1, 2, 3, 5, 4]


def test_a_chunk_of_the_vector_leg_is_not_pending() -> None:
    """A chunk that the vector retriever found counts as having a vector."""
    assert ranked(replace(found(), pending=frozenset({2}))) == ranked(found())


def test_a_single_leg_has_no_pending_chunks() -> None:
    """The ranking of a single retriever ignores pending chunks."""
    candidates = replace(found(), pending=frozenset({4, 5}))
    assert ranked(candidates, "vector") == ranked(found(), "vector")
    assert ranked(candidates, "keyword") == ranked(found(), "keyword")


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_a_least_similarity_leaves_out_chunks_and_changes_nothing_else(mode: Mode) -> None:
    """Chunk 4 was compared, and 5 has no vector. The limit counts what remains."""
    candidates = replace(found(), compared={4: 0.5})
    every = ranked(candidates, mode)
    similar = fuse(candidates, mode=mode, weights=None, limit=10, min_similarity=0.5)
    assert similar == [result for result in every if result.chunk_id in {1, 2, 4}]
    assert len(similar) == (3 if mode == "hybrid" else 2)
    best = fuse(candidates, mode=mode, weights=None, limit=2, min_similarity=0.5)
    assert best == similar[:2]


def test_a_least_similarity_of_0_still_needs_a_vector() -> None:
    results = fuse(found(), mode="hybrid", weights=None, limit=10, min_similarity=0.0)
    assert set(ids(results)) == {1, 2, 3}


DEFINED = {3: Promotion(0.2, "Foo"), 9: Promotion(0.2, "Foo")}


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
def test_promoted_chunks_come_first_in_every_mode(mode: Mode) -> None:
    """A promotion counts as cosine, also for a chunk that no retriever returned."""
    candidates = replace(found(), compared={9: 0.25})
    before = {result.chunk_id: result.score for result in ranked(candidates, mode)}
    results = fuse(candidates, mode=mode, weights=None, limit=10, promotions=DEFINED)
    scores = {result.chunk_id: result.score for result in results}
    unit = 1 / COSINE_PER_BM25 if mode == "keyword" else 1
    lowest = 0.25 if mode == "vector" else min(before.values())
    promoted = {
        3: before.get(3, lowest) + 0.2 * unit,
        9: lowest + 0.2 * unit,
    }
    assert scores == pytest.approx({**before, **promoted})
    assert ids(results) == sorted(scores, key=lambda key: -scores[key])
    assert {result.chunk_id for result in results if result.defines == "Foo"} == {3, 9}


def test_a_definition_without_a_vector_is_absent_in_vector_mode() -> None:
    """In vector mode only chunks with vectors are results."""
    results = fuse(found(), mode="vector", weights=None, limit=10, promotions=DEFINED)
    assert 9 not in ids(results)


def test_a_pending_definition_comes_first_too() -> None:
    """A chunk without a vector is promoted from its keyword rank."""
    candidates = replace(found(), pending=frozenset({5}))
    results = fuse(
        candidates, mode="hybrid", weights=None, limit=10, promotions={5: Promotion(0.4, "Foo")}
    )
    assert ids(results)[0] == 5


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
def test_an_adjustment_changes_hybrid_scores_alone(mode: Mode) -> None:
    """An adjustment counts as cosine, and its reasons are kept; a single retriever has its own."""
    adjustments = {3: Adjustment(name=0.25), 4: Adjustment(test=-0.1)}
    before = {result.chunk_id: result.score for result in ranked(found(), mode)}
    results = fuse(found(), mode=mode, weights=None, limit=10, adjustments=adjustments)
    if mode == "hybrid":
        before[3] += 0.25
        before[4] -= 0.1
    assert {result.chunk_id: result.score for result in results} == pytest.approx(before)
    assert ids(results) == sorted(before, key=lambda key: -before[key])
    reasons = {result.chunk_id: result.adjusted for result in results if result.adjusted}
    assert reasons == (
        {3: ("name +0.250",), 4: ("test or example -0.100",)} if mode == "hybrid" else {}
    )


def test_the_best_unit_of_a_document_of_code_comes_first() -> None:
    """A unit has the evidence of all its chunks; the scores of each document stay the same."""
    cosines = {1: 0.9, 2: 0.85, 3: 0.8, 4: 0.7, 5: 0.6, 6: 0.55}
    symbols = {1: "save", 2: None, 3: "load", 4: "load", 5: "save, load", 6: "close"}
    places = {
        key: ChunkPlace(9 if key == 2 else 8, key, key, key, 50, symbol=symbol, is_code=True)
        for key, symbol in symbols.items()
    }
    candidates = replace(found([*cosines.items()], []), places=places)
    adjustments = {
        3: Adjustment(name=0.02, in_document=0.05),
        4: Adjustment(name=0.02, in_document=0.1),
        6: Adjustment(test=-0.1),
    }

    def fused() -> list[Fused]:
        return fuse(candidates, mode="hybrid", weights=None, limit=10, adjustments=adjustments)

    assert ids(fused()) == [3, 2, 4, 1, 5, 6]
    adjusted = [0.9, 0.85, 0.82, 0.72, 0.6, 0.45]
    assert [result.score for result in fused()] == pytest.approx(adjusted)
    adjustments[1] = Adjustment(documentation=0.05)
    assert ids(fused()) == [1, 2, 3, 4, 5, 6]
    candidates = replace(
        candidates, places={key: place._replace(is_code=False) for key, place in places.items()}
    )
    del adjustments[1]
    assert ids(fused()) == [1, 2, 3, 4, 5, 6]


def test_a_question_for_names_leaves_the_units_of_a_document_in_order() -> None:
    """The definition comes first by its promotion alone."""
    place = ChunkPlace(8, 1, 1, 1, 50, symbol="save", is_code=True)
    places = {1: place, 2: place._replace(ordinal=2, symbol="load")}
    candidates = replace(found([(1, 0.9), (2, 0.85)], []), places=places)
    adjustments = {2: Adjustment(in_document=0.1)}

    def order(promotions: dict[int, Promotion]) -> list[int]:
        return ids(
            fuse(
                candidates,
                mode="hybrid",
                weights=None,
                limit=10,
                promotions=promotions,
                adjustments=adjustments,
            )
        )

    assert order({}) == [2, 1]
    assert order({1: Promotion(0.01, "save")}) == [1, 2]


@given(
    st.dictionaries(st.integers(1, 30), st.floats(0, 1), min_size=1),
    st.dictionaries(st.integers(1, 30), st.sampled_from(("a", "b", "a, b", None))),
    st.dictionaries(
        st.integers(1, 30),
        st.builds(Adjustment, *[st.floats(-0.1, 0.4), st.just(0.0), st.just(0.0), st.floats(0, 1)]),
    ),
)
def test_the_order_of_units_moves_no_document(
    cosines: dict[int, float], symbols: dict[int, str | None], adjustments: dict[int, Adjustment]
) -> None:
    """The documents at each rank are the same, whether their units are known or not."""
    vector = sorted(cosines.items(), key=lambda pair: (-pair[1], pair[0]))
    documents = {key: key % 4 for key in cosines}
    places = {
        key: ChunkPlace(documents[key], key, key, key, 50, symbol=symbol, is_code=True)
        for key, symbol in symbols.items()
        if key in documents
    }
    plain = found(vector, [], documents)

    def scores(candidates: Candidates) -> list[tuple[int, float]]:
        results = fuse(candidates, mode="hybrid", weights=None, limit=40, adjustments=adjustments)
        return sorted((documents[result.chunk_id], result.score) for result in results)

    assert scores(replace(plain, places=places)) == scores(plain)


def test_an_adjusted_chunk_without_a_vector_keeps_its_keyword_rank() -> None:
    """No adjustment moves a pending chunk."""
    candidates = replace(found(), pending=frozenset({4}))
    adjustments = {4: Adjustment(test=-0.5)}
    results = fuse(candidates, mode="hybrid", weights=None, limit=10, adjustments=adjustments)
    assert ids(results)[0] == 4
    assert not results[0].adjusted
