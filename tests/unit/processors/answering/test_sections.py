"""Answers in two sections: the division of a ranking, and sections with too few candidates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from events.models import Filters, Query
from processors.answering.fusion import Fused
from processors.answering.sections import (
    alternated,
    has_sections,
    narrowed_to,
    scarce_sections,
    sections_of,
    with_section,
)
from store.types import Candidates, ChunkPlace

PLACES = {
    chunk_id: ChunkPlace(chunk_id, 0, 1, 2, 8, in_code=chunk_id > 10)
    for chunk_id in (1, 2, 3, 11, 12, 13)
}
FULL = Candidates({"model": [(1, 0.9), (2, 0.8), (11, 0.7)]}, [(1, 9.0)], places=PLACES)


def ranking(*chunk_ids: int) -> list[Fused]:
    return [
        Fused(chunk_id, 1.0 - rank / 100, "vector", None, None)
        for rank, chunk_id in enumerate(chunk_ids)
    ]


def ids(ranked: Iterable[Fused]) -> list[int]:
    return [chunk.chunk_id for chunk in ranked]


def query_of(**fields: Any) -> Query:
    return Query.model_validate({"project": "docs", "text": "q", "reply_to": "r", **fields})


def test_the_section_of_the_best_chunk_comes_first() -> None:
    """Each section keeps its order, and a chunk of unknown place counts as a document."""
    parts = sections_of(ranking(11, 1, 2, 12, 99), PLACES)
    assert [ids(part) for part in parts] == [[11, 12], [1, 2, 99]]
    assert [ids(part) for part in sections_of(ranking(2, 1), PLACES)] == [[2, 1], []]
    assert sections_of([], PLACES) == []


def test_sections_take_turns_for_a_reranker() -> None:
    """The best of each section come first, and none is left out."""
    assert ids(alternated(ranking(1, 2, 3, 11, 12), PLACES)) == [1, 11, 2, 12, 3]


def test_filters_of_kinds_and_old_questions_have_no_sections() -> None:
    """A question that names kinds is for these alone; the field is left out if it is not used."""
    assert has_sections(query_of(sections=True))
    assert not has_sections(query_of())
    assert not has_sections(query_of(sections=True, filters={"kinds": ["code"]}))
    assert "sections" not in query_of().model_dump_json()


def test_a_question_for_one_section_names_its_kinds() -> None:
    """Other filters stay, and code examples are in no section."""
    query = query_of(sections=True, filters={"uri_prefix": "src/"})
    assert narrowed_to(query, "code").filters == Filters(kinds=("code",), uri_prefix="src/")
    kinds = narrowed_to(query, "documents").filters.kinds
    assert "markdown" in kinds
    assert not {"code", "code_example"} & set(kinds)


@pytest.mark.parametrize(
    ("limit", "asked", "scarce"),
    [(3, 3, []), (4, 3, ["code", "documents"]), (4, 4, [])],
    ids=["enough", "few", "few, but there are no more"],
)
def test_a_section_is_scarce_if_there_may_be_more(
    limit: int, asked: int, scarce: list[str]
) -> None:
    """That is so if a retriever returned as many chunks as it was asked for."""
    query = query_of(sections=True, limit=limit)
    assert scarce_sections(query, FULL, asked) == scarce
    assert scarce_sections(query_of(limit=limit), FULL, asked) == []


def test_one_section_may_be_scarce() -> None:
    """The candidates of each section are counted, not their documents."""
    places = {chunk_id: place for chunk_id, place in PLACES.items() if chunk_id < 12}
    candidates = replace(FULL, places=places)
    assert scarce_sections(query_of(sections=True, limit=3), candidates, 3) == ["code"]


def test_a_searched_section_takes_the_place_of_its_first_chunk() -> None:
    """Without any, it follows the others."""
    own = ranking(12, 13, 11)
    assert ids(with_section(ranking(1, 11, 2), PLACES, "code", own)) == [1, 12, 13, 11, 2]
    assert ids(with_section(ranking(11, 1), PLACES, "code", own)) == [12, 13, 11, 1]
    assert ids(with_section(ranking(1, 2), PLACES, "code", own)) == [1, 2, 12, 13, 11]
