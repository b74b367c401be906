"""Spans of a text that give some of its terms, for marking the words of a question.

The tokeniser folds a text before it converts it to terms, which moves characters. So words are
looked up in the text as it is, and each is converted by itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from store.search.keyword.tokenizer import terms

__all__ = ["Place", "places_of"]

Place = tuple[int, int]
"""Index of the first character of a span, and of the first one behind it."""

_MARK = r"\u0300-\u036f"
_RUN = re.compile(rf"\w[\w{_MARK}]*(?:(?:\.|::|->|/)\w[\w{_MARK}]*)*")
_NAME = re.compile(rf"\w[\w{_MARK}]*")
_ASCII_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_SPACELESS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_PART = re.compile(rf"[{_SPACELESS}]+|[^_{_SPACELESS}]+")
_IS_SPACELESS = re.compile(rf"[{_SPACELESS}]")


def places_of(text: str, wanted: Collection[str]) -> dict[str, list[Place]]:
    """Places of wanted terms in a text, in order; terms that don't occur are absent.

    The term of a whole identifier has the place of all of it, and other terms that of a word or a
    part of an identifier.
    """
    places: defaultdict[str, list[Place]] = defaultdict(list)
    for run in _RUN.finditer(text):
        if any(term in wanted for term in terms(run[0])):
            for term, place in _of_run(text, run.span()):
                if term in wanted:
                    places[term].append(place)
    return dict(places)


def _of_run(text: str, run: Place) -> Iterator[tuple[str, Place]]:
    """Terms of a run, each with the smallest piece that gives it: a part, a name or all of it."""
    names = [match.span() for match in _NAME.finditer(text, *run)]
    parts = [part for name in names for part in _parts(text, name)]
    smaller: set[str] = set()
    for pieces in (parts, names, [run]):
        given = [(term, place) for place in pieces for term in set(terms(text[slice(*place)]))]
        yield from (pair for pair in given if pair[0] not in smaller)
        smaller.update(term for term, _ in given)


def _parts(text: str, name: Place) -> Sequence[Place]:
    """Places of the parts of a name: words, numbers, and pairs of characters without spaces."""
    if text[slice(*name)].isascii():
        return [match.span() for match in _ASCII_PART.finditer(text, *name)]
    parts: list[Place] = []
    for match in _PART.finditer(text, *name):
        if _IS_SPACELESS.match(match[0]) and len(match[0]) > 1:
            parts += [(start, start + 2) for start in range(match.start(), match.end() - 1)]
        else:
            parts.append(match.span())
    return parts
