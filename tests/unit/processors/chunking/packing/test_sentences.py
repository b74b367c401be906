"""Sentences of a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.chunking.packing.sentences import (
    LONGEST_SENTENCE,
    SHORTEST_SENTENCE,
    sentence_spans,
)

LONG = "a sentence of more than forty characters in all"


def sentences(line: str) -> list[str]:
    return [line[start:end] for start, end in sentence_spans(line)]


@given(st.text(st.sampled_from('ab A1.!?。"」) \t'), max_size=300))
def test_the_spans_cover_a_line_without_gaps(line: str) -> None:
    """Joined, the sentences are the line, whatever it holds."""
    assert "".join(sentences(line)) == line
    assert all(sentences(line))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (f"This is {LONG}. ", f"Here is {LONG}."),
        (f"Is this {LONG}?  ", f'"No," is {LONG}.'),
        (f'He said "{LONG}!" ', f"2 of them are {LONG}."),
        (f"**Here is {LONG}.** ", f"*There* is {LONG}."),
        (f"{'漢字かな' * 12}。", f"{'次の文章' * 12}。"),
        (f"Wait for {LONG}... ", f"Ärger is {LONG}."),
    ],
)
def test_a_sentence_ends_before_a_capital_a_digit_or_a_quote(first: str, second: str) -> None:
    """Closing marks and blanks belong to the sentence that they end."""
    assert sentences(first + second) == [first, second]


@pytest.mark.parametrize(
    "line",
    [
        f"Version 3.14 is {LONG}, e.g. in lower case, and {LONG}",
        f"The file main.py has {LONG} and {LONG}",
        f"Of {LONG}! no capital follows in {LONG}",
    ],
)
def test_a_stop_alone_ends_no_sentence(line: str) -> None:
    """Numbers, file names and abbreviations before lower case are parts of a sentence."""
    assert sentences(line) == [line]


def test_short_sentences_are_joined() -> None:
    """The number of an item, or an exclamation, is no sentence of its own."""
    line = f"1. Yes. This is {LONG}. Oh! Here is {LONG}. End."
    assert sentences(line) == [f"1. Yes. This is {LONG}. ", f"Oh! Here is {LONG}. End."]
    assert len("1. Yes. ") < SHORTEST_SENTENCE


def test_a_long_sentence_is_cut_at_a_word() -> None:
    """A sentence without an end is cut after a blank, and one without blanks anywhere."""
    words = sentences("word " * 500)
    assert len(words) == 4
    assert all(len(part) <= LONGEST_SENTENCE and part.endswith("word ") for part in words)
    assert [len(part) for part in sentences("x" * 2_000)] == [800, 800, 400]
