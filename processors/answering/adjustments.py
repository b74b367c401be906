"""Additions to a chunk's fused score by its unit's name and documentation, and if it is a test.

A question in plain words often has the words of a name: ``raise_for_status`` is what raises for a
status. Or it has those of the sentence with which the documentation begins. Neither retriever shows
that, as both are a small part of a chunk. And a test has the words of what it tests, often several
times. Figures in docs/explanation/decisions/fusion.md.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from content.signatures import documentation_of, symbols_of
from processors.answering.query_text import searchable
from store.search.keyword.tokenizer import EXACT, terms
from store.types import Candidates, ChunkPlace

__all__ = [
    "COMPARED",
    "DOCUMENTATION_BONUS",
    "NAME_BONUS",
    "TEST_MALUS",
    "Adjustment",
    "adjustments",
    "is_test",
]

NAME_BONUS = 0.1
"""Added if the question has all words of the name of the chunk's unit, in cosine; else a share."""

DOCUMENTATION_BONUS = 0.25
"""Added if the question and the beginning of a unit's documentation have the same words, in cosine;
else a share."""

TEST_MALUS = 0.1
"""Subtracted from the score of a test or an example, in cosine."""

_MOST_CACHED = 16_384
"""Names and uris whose words are kept: each question looks at those of 200 chunks."""

COMPARED = 30
"""Best chunks of each retriever whose documentation is compared, as reading it takes time."""

_IDENTIFIER = re.compile(r"_|[a-z0-9][A-Z]|\w(?:\.|::)\w|\(\)")
_TEST_FOLDERS = frozenset(
    ("__tests__", "benchmarks", "examples", "spec", "specs", "test", "testing", "tests")
)
_TEST_STEM = re.compile(r"test_|conftest$|.*(?:_test|_tests|[.-]test|[.-]spec|_spec|[a-z]Tests?)$")
_WORDS_OF_TESTS = frozenset(terms("benchmark example spec test"))


class Adjustment(NamedTuple):
    """An addition to the score of a chunk, in cosine, and the reasons for it."""

    bonus: float
    reasons: tuple[str, ...]


def adjustments(question: str, candidates: Candidates) -> dict[int, Adjustment]:
    """Return the adjustments of candidates by id, without those that have none.

    A chunk of one unit of code gains by the share of the words in the unit's qualified name that
    the question has, and by what its documentation has in common with the question. A chunk of
    several units does not: it says less about each. Tests and examples lose, unless the question
    has a word for them. An empty question adjusts nothing.
    """
    asked = frozenset(terms(searchable(question)))
    is_about_tests = not asked.isdisjoint(_WORDS_OF_TESTS)
    agreements = _agreements(question, asked, candidates)
    adjusted: dict[int, Adjustment] = {}
    for chunk_id, place in candidates.places.items() if asked else ():
        name = NAME_BONUS * _share_of_name(place, asked)
        documentation = DOCUMENTATION_BONUS * agreements.get(chunk_id, 0.0)
        test = -TEST_MALUS if is_test(place.uri) and not is_about_tests else 0.0
        if name or documentation or test:
            parts = ("name", name), ("documentation", documentation), ("test or example", test)
            reasons = [f"{part} {bonus:+.3f}" for part, bonus in parts if bonus]
            adjusted[chunk_id] = Adjustment(name + documentation + test, tuple(reasons))
    return adjusted


def _agreements(question: str, asked: frozenset[str], candidates: Candidates) -> dict[int, float]:
    """Agreement of a question with the documentation of the best chunks, 0 to 1, by chunk id.

    It is the harmonic mean of two shares: of the question's words, by their weights in BM25, which
    the documentation has, and of the documentation's words, which the question has. Identifiers in
    the question do not count: they name what is looked for, and do not describe it.
    """
    weights = {term: candidates.term_weights.get(term, 0.0) for term in asked}
    words = [word for word in searchable(question).split() if not _IDENTIFIER.search(word)]
    plain = asked.intersection(terms(" ".join(words)))
    total = sum(weights.values())
    if len(plain) < 2 or not total:
        return {}
    rankings = (*candidates.vector.values(), candidates.keyword)
    agreements: dict[int, float] = {}
    for chunk_id in {chunk_id for ranked in rankings for chunk_id, _ in ranked[:COMPARED]}:
        place = candidates.places.get(chunk_id)
        described = _words_of_documentation(place.beginning) if place else frozenset()
        shared = described & plain
        if shared:
            of_question = sum(weights[term] for term in shared) / total
            of_documentation = len(shared) / len(described)
            both = of_question + of_documentation
            agreements[chunk_id] = 2 * of_question * of_documentation / both
    return agreements


@lru_cache(_MOST_CACHED)
def _words_of_documentation(beginning: str) -> frozenset[str]:
    """Words with which the documentation of a unit begins, by the beginning of its text."""
    words = terms(documentation_of(beginning))
    return frozenset(term for term in words if not term.startswith(EXACT))


def _share_of_name(place: ChunkPlace, asked: frozenset[str]) -> float:
    """Share of the words of a unit's qualified name that a question has, 0 to 1."""
    words = _words_of_name(place.symbol) if place.is_code else frozenset()
    return len(words & asked) / len(words) if words else 0.0


@lru_cache(_MOST_CACHED)
def _words_of_name(symbol: str | None) -> frozenset[str]:
    """Words of the only name in a symbol; none if it has several."""
    names = symbols_of(symbol)
    if len(names) != 1:
        return frozenset()
    return frozenset(term for term in terms(names[0]) if not term.startswith(EXACT))


@lru_cache(_MOST_CACHED)
def is_test(uri: str) -> bool:
    """Return whether a file is a test or an example by its name or a folder."""
    # without pathlib, which takes most of the time of this function
    *folders, name = [part for part in uri.split("/") if part not in ("", ".")] or [""]
    stem = name[:dot] if 0 < (dot := name.rfind(".")) < len(name) - 1 else name
    is_named_so = _TEST_STEM.match(name.partition(".")[0]) or _TEST_STEM.match(stem)
    return bool(is_named_so) or not _TEST_FOLDERS.isdisjoint(folders)
