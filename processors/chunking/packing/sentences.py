"""Sentences of one line of prose."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["LONGEST_SENTENCE", "SHORTEST_SENTENCE", "sentence_spans"]

SHORTEST_SENTENCE = 40
"""Characters below which a sentence is joined with another one of its line."""

LONGEST_SENTENCE = 800
"""Characters over which a sentence is cut at a word."""

_CLOSING = r"[\"'”’»›)\]*_`]*"  # noqa: RUF001 - marks that close a quotation
_LATIN_END = rf"(?<![.!?…])[.!?…]++{_CLOSING}+\s++"
_CJK_END = r"[。！？]+[」』”’）]*\s*"  # noqa: RUF001 - Chinese and Japanese marks
_END = re.compile(rf"{_LATIN_END}|{_CJK_END}")
_CJK_STOPS = "。！？"  # noqa: RUF001 - Chinese and Japanese marks
_OPENING = frozenset("\"'“‘«‹([*_`#-–—")  # noqa: RUF001 - marks that open a sentence


def sentence_spans(line: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each sentence of ``line``; the spans cover the line without gaps.

    A sentence ends after a full stop, an exclamation mark or a question mark, with the marks that
    close a quotation, if a blank and then a capital, a digit or an opening mark follow. Chinese
    and Japanese stops need no blank. Abbreviations before a name end a sentence too. A sentence of
    less than ``SHORTEST_SENTENCE`` characters, such as the number of an item, is joined with the
    next. One of more than ``LONGEST_SENTENCE`` is cut at a word.
    """
    start = 0
    for end in _ends(line):
        if end - start >= SHORTEST_SENTENCE and len(line) - end >= SHORTEST_SENTENCE:
            yield from _bounded(line, start, end)
            start = end
    if start < len(line):
        yield from _bounded(line, start, len(line))


def _ends(line: str) -> Iterator[int]:
    for match in _END.finditer(line):
        end = match.end()
        if end < len(line) and (match[0][0] in _CJK_STOPS or _begins_sentence(line[end])):
            yield end


def _begins_sentence(character: str) -> bool:
    """Return whether a sentence may begin so; letters without case may."""
    if character.isalpha():
        return not character.islower()
    return character.isdigit() or character in _OPENING


def _bounded(line: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a span at words into spans of at most ``LONGEST_SENTENCE`` characters."""
    while end - start > LONGEST_SENTENCE:
        middle = start + LONGEST_SENTENCE // 2
        blank = line.rfind(" ", middle, start + LONGEST_SENTENCE)
        cut = start + LONGEST_SENTENCE if blank < 0 else blank + 1
        yield start, cut
        start = cut
    yield start, end
