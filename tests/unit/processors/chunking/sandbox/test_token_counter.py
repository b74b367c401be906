"""Word-by-word token counts, compared with the tokenizer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from processors.chunking.sandbox.token_counter import WordwiseCounter
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path

TOKENIZER = TokenCounter(tokenizer_path(None))
COUNTER = WordwiseCounter(TOKENIZER)
PARTS = ["a", "Zebra", "x9_y", " ", "\t", "\n", "\r", "\0", "é", "漢", "[CLS]", "[SEP]", "-", "!?"]
TEXTS = st.lists(st.lists(st.sampled_from(PARTS), max_size=8).map("".join), max_size=20)


@given(TEXTS)
def test_many_texts_are_counted_as_each_by_itself(texts: list[str]) -> None:
    """Counts of many texts equal the tokenizer's, also with empty texts and special tokens."""
    assert COUNTER(texts) == TOKENIZER(texts)


@given(st.lists(st.text(max_size=30), min_size=8, max_size=12))
def test_any_texts_are_counted_rightly(texts: list[str]) -> None:
    """Counts of arbitrary texts equal the tokenizer's."""
    assert COUNTER(texts) == TOKENIZER(texts)


def test_more_words_than_are_remembered_are_counted_all_the_same() -> None:
    """Counts stay right after words were dropped from the cache."""
    counter = WordwiseCounter(TOKENIZER, most_words=10)
    texts = [f"word{number} of many, {number}" for number in range(60)]
    assert counter(texts) == counter(texts) == TOKENIZER(texts)
