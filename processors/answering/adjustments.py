"""Additions to a chunk's fused score by its unit's name and documentation, and if it is a test.

A question in plain words often has the words of a name: ``raise_for_status`` is what raises for a
status. Or it has those of the sentence with which the documentation begins. Neither retriever shows
that, as both are a small part of a chunk. And a test has the words of what it tests, often several
times. The passage of a document that is shown is chosen by units: the beginning of a function says
more about it than its middle. Figures in docs/explanation/decisions/fusion.md.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import fsum
from typing import NamedTuple

from content.signatures import documentation_of, is_defined_in, owners_of, symbols_of
from processors.answering.query_text import searchable
from store.search.keyword.tokenizer import EXACT, terms
from store.types import Candidates

__all__ = [
    "BEGINNING_BONUS",
    "COMPARED",
    "DOCUMENTATION_BONUS",
    "NAME_BONUS",
    "TEST_MALUS",
    "WHOLE_NAME_BONUS",
    "Adjustment",
    "adjustments",
    "is_test",
]

NAME_BONUS = 0.1
"""Added if the question has all words of the name of the chunk's unit, in cosine; else a share."""

WHOLE_NAME_BONUS = 0.15
"""Added if the question has all words of a unit's own name of three or more words, in cosine."""

DOCUMENTATION_BONUS = 0.25
"""Added if the question and the beginning of a unit's documentation have the same words, in cosine;
else a share."""

BEGINNING_BONUS = 0.06
"""Added to a unit whose beginning is among the chunks that the question found, in cosine, when it
is compared with other units of its document."""

TEST_MALUS = 0.1
"""Subtracted from the score of a test or an example, in cosine."""

_MOST_CACHED = 16_384
"""Names and uris whose words are kept: each question looks at those of 200 chunks."""

COMPARED = 30
"""Best chunks of each retriever whose texts are read, as it takes time."""

_FEWEST_WORDS = 3
"""Words of a name that are not all in a question by chance, as two may be."""

_TEST = "test or example"
_IDENTIFIER = re.compile(r"_|[a-z0-9][A-Z]|\w(?:\.|::)\w|\(\)")
_TEST_FOLDERS = frozenset(
    ("__tests__", "benchmarks", "examples", "spec", "specs", "test", "testing", "tests")
)
_TEST_STEM = re.compile(r"test_|conftest$|.*(?:_test|_tests|[.-]test|[.-]spec|_spec|[a-z]Tests?)$")
_WORDS_OF_TESTS = frozenset(terms("benchmark example spec test"))


class Adjustment(NamedTuple):
    """Additions to the score of a chunk, in cosine: by name, by documentation, and as a test.

    ``in_document`` is a further one for its unit among the units of its document.
    """

    name: float = 0.0
    documentation: float = 0.0
    test: float = 0.0
    in_document: float = 0.0

    @property
    def bonus(self) -> float:
        """Sum of the additions to the score."""
        return self.name + self.documentation + self.test

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each addition to the score, as an explanation shows it."""
        parts = ("name", self.name), ("documentation", self.documentation), (_TEST, self.test)
        return tuple(f"{part} {bonus:+.3f}" for part, bonus in parts if bonus)


class _NameWords(NamedTuple):
    """Words of a unit's qualified name, and those of its own name, without its owners'."""

    qualified: frozenset[str]
    own: frozenset[str]


_NO_WORDS = _NameWords(frozenset(), frozenset())


def adjustments(question: str, candidates: Candidates) -> dict[int, Adjustment]:
    """Return the adjustments of candidates by id, without those that have none.

    A chunk of one unit of code gains by the share of the words in the unit's qualified name that
    the question has, by all words of a long name, and by what its documentation has in common with
    the question. A chunk of several units does not: it says less about each. Tests and examples
    lose, unless the question has a word for them. An empty question adjusts nothing.
    """
    text = searchable(question)
    asked = frozenset(terms(text))
    if not asked:
        return {}
    plain = asked.intersection(_plain_terms(text))
    is_about_tests = not asked.isdisjoint(_WORDS_OF_TESTS)
    agreements, beginnings = _compared(asked, plain, candidates)
    adjusted: dict[int, Adjustment] = {}
    for chunk_id, place in candidates.places.items():
        name = 0.0
        if place.is_code:
            words = _words_of_name(place.symbol)
            if not words.qualified.isdisjoint(asked):
                name = _name_bonus(words, asked, plain)
        documentation = DOCUMENTATION_BONUS * agreements.get(chunk_id, 0.0)
        test = 0.0 if is_about_tests or not is_test(place.uri) else -TEST_MALUS
        begins = chunk_id in beginnings
        if name or documentation or test or begins:
            adjusted[chunk_id] = Adjustment(
                name, documentation, test, BEGINNING_BONUS if begins else 0.0
            )
    return adjusted


def _plain_terms(text: str) -> list[str]:
    """Terms of a question without its identifiers.

    These name what is looked for, and do not describe it.
    """
    return terms(" ".join([word for word in text.split() if not _IDENTIFIER.search(word)]))


def _compared(
    asked: frozenset[str], plain: frozenset[str], candidates: Candidates
) -> tuple[dict[int, float], set[int]]:
    """Compare a question with the beginnings of the best chunks of each retriever.

    Returns its agreement with the documentation of chunks, 0 to 1, by chunk id, and the ids of
    those that have the beginning of their unit. An agreement is the harmonic mean of two shares: of
    the question's words, by their weights in BM25, which the documentation has, and of the
    documentation's words, which the question has. Only the plain words of the question count.
    """
    weights = {term: candidates.term_weights.get(term, 0.0) for term in asked}
    # the order of a set differs between processes, and so would a plain sum in its last digit
    total = fsum(weights.values()) if len(plain) > 1 else 0.0
    agreements: dict[int, float] = {}
    beginnings: set[int] = set()
    rankings = (*candidates.vector.values(), candidates.keyword)
    for chunk_id in {chunk_id for ranked in rankings for chunk_id, _ in ranked[:COMPARED]}:
        place = candidates.places.get(chunk_id)
        if place is None or not place.beginning:
            continue
        described, begins = _beginning(place.beginning, place.symbol)
        if begins:
            beginnings.add(chunk_id)
        shared = described & plain if total else None
        if shared:
            of_question = fsum([weights[term] for term in shared]) / total
            of_documentation = len(shared) / len(described)
            both = of_question + of_documentation
            agreements[chunk_id] = 2 * of_question * of_documentation / both
    return agreements, beginnings


@lru_cache(_MOST_CACHED)
def _beginning(text: str, symbol: str | None) -> tuple[frozenset[str], bool]:
    """Words of the documentation in the beginning of a chunk, and if it begins its unit."""
    begins = symbol is not None and is_defined_in(text, symbol)
    return _words_of(documentation_of(text)), begins


def _name_bonus(words: _NameWords, asked: frozenset[str], plain: frozenset[str]) -> float:
    """Addition for the words of a unit's name that a question has."""
    is_whole = len(words.own) >= _FEWEST_WORDS and words.own <= plain
    share = len(words.qualified & asked) / len(words.qualified)
    return NAME_BONUS * share + WHOLE_NAME_BONUS * is_whole


@lru_cache(_MOST_CACHED)
def _words_of_name(symbol: str | None) -> _NameWords:
    """Words of the only name in a symbol; none if it has several."""
    names = symbols_of(symbol)
    if len(names) != 1:
        return _NO_WORDS
    owners = owners_of(names[0])
    if not owners:
        own = _words_of_part(names[0])
        return _NameWords(own, own)
    owner, prefix = owners[-1]
    own = _words_of_part(names[0].removeprefix(prefix))
    return _NameWords(_words_of_part(owner) | own, own)


@lru_cache(_MOST_CACHED)
def _words_of_part(name: str) -> frozenset[str]:
    """Words of a part of a name; a class is a part of the names of all its methods."""
    return _words_of(name)


def _words_of(text: str) -> frozenset[str]:
    return frozenset([term for term in terms(text) if not term.startswith(EXACT)])


@lru_cache(_MOST_CACHED)
def is_test(uri: str) -> bool:
    """Return whether a file is a test or an example by its name or a folder."""
    # without pathlib, which takes most of the time of this function
    *folders, name = [part for part in uri.split("/") if part not in ("", ".")] or [""]
    stem = name[:dot] if 0 < (dot := name.rfind(".")) < len(name) - 1 else name
    is_named_so = _TEST_STEM.match(name.partition(".")[0]) or _TEST_STEM.match(stem)
    return bool(is_named_so) or not _TEST_FOLDERS.isdisjoint(folders)
