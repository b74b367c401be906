"""Additions to a chunk's fused score by its place: the name of its unit, and if it is a test.

A question in plain words often has the words of a name: ``raise_for_status`` is what raises for a
status. Neither retriever shows that, as a name is a small part of a chunk. And a test has the words
of what it tests, often several times. Figures in docs/explanation/decisions/fusion.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from content.signatures import symbols_of
from processors.answering.query_text import searchable
from store.search.keyword.tokenizer import EXACT, terms
from store.types import ChunkPlace

__all__ = ["NAME_BONUS", "TEST_MALUS", "Adjustment", "adjustments", "is_test"]

NAME_BONUS = 0.08
"""Added if the question has all words of the name of the chunk's unit, in cosine; else a share."""

TEST_MALUS = 0.1
"""Subtracted from the score of a test or an example, in cosine."""

_MOST_CACHED = 16_384
"""Names and uris whose words are kept: each question looks at those of 200 chunks."""

_TEST_FOLDERS = frozenset(
    ("__tests__", "benchmarks", "examples", "spec", "specs", "test", "testing", "tests")
)
_TEST_STEM = re.compile(r"test_|conftest$|.*(?:_test|_tests|[.-]test|[.-]spec|_spec|[a-z]Tests?)$")
_WORDS_OF_TESTS = frozenset(terms("benchmark example spec test"))


class Adjustment(NamedTuple):
    """An addition to the score of a chunk, in cosine, and the reasons for it."""

    bonus: float
    reasons: tuple[str, ...]


def adjustments(question: str, places: Mapping[int, ChunkPlace]) -> dict[int, Adjustment]:
    """Return the adjustments of chunks by id, without those that have none.

    A chunk of one unit of code gains by the share of the words in the unit's qualified name that
    the question has. A chunk of several units does not: it says less about each. Tests and examples
    lose, unless the question has a word for them. An empty question adjusts nothing.
    """
    asked = frozenset(terms(searchable(question)))
    is_about_tests = not asked.isdisjoint(_WORDS_OF_TESTS)
    adjusted: dict[int, Adjustment] = {}
    for chunk_id, place in places.items() if asked else ():
        share = _share_of_name(place, asked)
        is_lower = is_test(place.uri) and not is_about_tests
        if share or is_lower:
            reasons = [f"name {NAME_BONUS * share:+.3f}"] if share else []
            reasons += [f"test or example {-TEST_MALUS:+.3f}"] if is_lower else []
            bonus = NAME_BONUS * share - TEST_MALUS * is_lower
            adjusted[chunk_id] = Adjustment(bonus, tuple(reasons))
    return adjusted


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
