"""Passages made from ranked chunks: joined within a unit, and grouped by document."""

from __future__ import annotations

from typing import Any

import pytest

from processors.answering.fusion import Fused
from processors.answering.units import JOINED_CHUNKS, PASSAGE_TOKENS, Passage, passages_of
from store.types import ChunkPlace

_LINES = 10


def _place(ordinal: int, symbol: str | None = None, **fields: Any) -> ChunkPlace:
    """Place of a chunk of ten lines; with a symbol it is code."""
    values: dict[str, Any] = {
        "document_id": 1,
        "start_line": ordinal * _LINES + 1,
        "end_line": ordinal * _LINES + _LINES,
        "tokens": 100,
        "is_code": symbol is not None,
    }
    return ChunkPlace(**{**values, "ordinal": ordinal, "symbol": symbol, **fields})


def _passages(
    places: list[ChunkPlace], limit: int = 10, *, by_document: bool = False
) -> list[Passage]:
    """Passages of chunks that are given best first; ids count from 1."""
    ranked = [
        Fused(number, 1 / number, "vector", None, None) for number in range(1, len(places) + 1)
    ]
    by_id = dict(enumerate(places, start=1))
    return passages_of(ranked, by_id, limit, by_document=by_document)


def _shape(passages: list[Passage]) -> list[tuple[list[int], list[list[int]]]]:
    """Ordinals of each passage, and of its other matches."""
    return [
        (list(passage.ordinals), [list(other.ordinals) for other in passage.others])
        for passage in passages
    ]


@pytest.mark.parametrize(
    ("places", "shape"),
    [
        ([_place(3, "A.f"), _place(2, "A.f")], [([2, 3], [])]),
        ([_place(3, "A.f"), _place(1, "A.f")], [([1, 2, 3], [])]),
        ([_place(3, "A.f"), _place(4, "A.g")], [([3, 4], [])]),
        ([_place(3, "A.f"), _place(4, "B.g")], [([3], []), ([4], [])]),
        ([_place(3, "f"), _place(4, "g")], [([3], []), ([4], [])]),
        ([_place(3, "A"), _place(4, "A.f, A.g")], [([3, 4], [])]),
        ([_place(3, "A::f"), _place(2, "A::g")], [([2, 3], [])]),
        ([_place(9, "f"), _place(2, "f"), _place(3, "f")], [([9], [[2, 3]])]),
        ([_place(9, "f"), _place(5, "f"), _place(7, "f")], [([7, 8, 9], [[5]])]),
        ([_place(3), _place(4)], [([3, 4], [])]),
        ([_place(3), _place(8)], [([3], []), ([8], [])]),
        (
            [_place(3, heading_path=("a",)), _place(4, heading_path=("b",))],
            [([3], []), ([4], [])],
        ),
        (
            [_place(3, heading_path=("a",)), _place(5, heading_path=("a",))],
            [([3, 4, 5], [])],
        ),
        ([_place(3, is_example=True), _place(4, is_example=True)], [([3], []), ([4], [])]),
        ([_place(3), _place(4, document_id=2)], [([3], []), ([4], [])]),
        # speakers are not functions
        (
            [_place(3, "Ann", is_code=False), _place(9, "Ann", is_code=False)],
            [([3], []), ([9], [])],
        ),
        # a passage grows into the one that it then touches, and keeps the better rank
        ([_place(1), _place(4), _place(3), _place(2)], [([1, 2, 3, 4], [])]),
        # a unit between two parts of another would be shown twice
        ([_place(4, "g"), _place(3, "f"), _place(5, "f")], [([3, 4, 5], [])]),
        # and so would an other match between two methods
        (
            [_place(4, "A"), _place(18, "A"), _place(19, "A.f"), _place(17, "A.g")],
            [([4], [[18]]), ([19], []), ([17], [])],
        ),
    ],
)
def test_neighbours_of_one_unit_become_one_passage(
    places: list[ChunkPlace], shape: list[tuple[list[int], list[list[int]]]]
) -> None:
    """Chunks join within a function, class or section, also over one chunk between them."""
    assert _shape(_passages(places)) == shape


def test_a_passage_is_bounded() -> None:
    """What would make a passage longer than the limit is an other match of the function."""
    places = [_place(ordinal, "f", tokens=200) for ordinal in (5, 6, 7, 4)]
    [passage] = _passages(places)
    assert passage.tokens <= PASSAGE_TOKENS
    assert _shape([passage]) == [([5, 6], [[7], [4]])]
    sections = [_place(ordinal, tokens=300) for ordinal in (5, 6)]
    assert _shape(_passages(sections)) == [([5], []), ([6], [])]


def test_tokens_between_parts_are_estimated_by_their_lines() -> None:
    """A long chunk between two short ones keeps them apart."""
    near = [_place(1, tokens=100), _place(3, tokens=100, start_line=300, end_line=310)]
    assert _shape(_passages(near)) == [([1], []), ([3], [])]


def test_the_limit_counts_passages() -> None:
    """Joined chunks make room for further results."""
    places = [_place(1, "f"), _place(2, "f"), _place(20, "g"), _place(3, "f")]
    assert _shape(_passages(places, limit=2)) == [([1, 2, 3], []), ([20], [])]


def test_the_best_chunks_join_their_passage_whatever_the_limit() -> None:
    """Weak neighbours below the last passage and below the best chunks are left out."""
    others = [_place(40, f"h{at}", document_id=at) for at in range(2, JOINED_CHUNKS)]
    places = [_place(1, "f"), *others, _place(2, "f"), _place(3, "f"), _place(4, "f")]
    assert _shape(_passages(places, limit=1)) == [([1, 2], [])]
    assert _shape(_passages(places, limit=JOINED_CHUNKS))[0] == ([1, 2, 3, 4], [])


def test_a_group_is_a_document() -> None:
    """The best passage stands for its document; the limit counts documents."""
    places = [
        _place(1, "f"),
        _place(20, "g"),
        _place(1, document_id=2),
        _place(2, "f"),
        _place(40, "h"),
        _place(1, document_id=3),
        _place(60, "i"),
    ]
    groups = _passages(places, limit=2, by_document=True)
    assert _shape(groups) == [([1, 2], [[20], [40], [60]]), ([1], [])]
    assert [group.document_id for group in groups] == [1, 2]


def test_a_chunk_of_unknown_place_is_a_passage() -> None:
    """If the places could not be looked up, each chunk is a result."""
    ranked = [Fused(number, 1 / number, "vector", None, None) for number in (1, 2, 3)]
    for by_document in (False, True):
        passages = passages_of(ranked, {}, 2, by_document=by_document)
        assert [passage.chunk_ids for passage in passages] == [[1], [2]]
