"""Parts of a line that is too long: few, and of about equal length."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from processors.chunking.packing.long_lines import cut_line
from tests.support.chunking import counter, cut

LIMIT_TOKENS = 100
SENTENCE = "This sentence is about the weather in the mountains. "
TOKENS_PER_SENTENCE = 10


@pytest.mark.parametrize("sentences", [11, 15, 19, 24, 29])
def test_parts_are_few_equal_and_end_with_sentences(sentences: int) -> None:
    """A line is cut into the fewest parts, of similar length, between sentences."""
    line = SENTENCE * sentences
    parts = cut_line(line, LIMIT_TOKENS, counter())
    assert "".join(parts) == line
    assert all(part.endswith(". ") for part in parts)
    assert len(parts) == -(-sentences * TOKENS_PER_SENTENCE // LIMIT_TOKENS)
    tokens = counter()(parts)
    assert max(tokens) <= LIMIT_TOKENS
    assert max(tokens) - min(tokens) <= 2 * TOKENS_PER_SENTENCE


def test_sentences_of_a_very_long_line_stay_whole() -> None:
    """Parts of a very long line end between sentences."""
    line = "".join("word " * (12 + n * 7 % 17) + "end. " for n in range(200))
    parts = cut_line(line, LIMIT_TOKENS, counter())
    assert all(part.endswith("end. ") for part in parts[:-3])
    assert min(counter()(parts)) > LIMIT_TOKENS // 2


def test_words_stay_whole_where_no_sentence_ends() -> None:
    """A line without punctuation is cut between words near its middle."""
    line = "word " * 150
    parts = cut_line(line, LIMIT_TOKENS, counter())
    assert "".join(parts) == line
    assert all(part.endswith("word ") for part in parts)
    assert [round(tokens, -1) for tokens in counter()(parts)] in ([80, 70], [70, 80])


def test_a_word_over_the_limit_is_cut() -> None:
    """A long run of characters without words is cut within the limit."""
    line = "+" * 1000
    parts = cut_line(line, LIMIT_TOKENS, counter())
    assert "".join(parts) == line
    assert max(counter()(parts)) <= LIMIT_TOKENS


@pytest.mark.parametrize("line", [SENTENCE * 40_000, "word " * 400_000, "{,}" * 300_000])
def test_work_grows_with_the_line_only(line: str) -> None:
    """Each character of a long line is counted at most six times."""
    counted = 0

    def counting(texts: Sequence[str]) -> list[int]:
        nonlocal counted
        counted += sum(map(len, texts))
        return counter()(texts)

    assert "".join(cut_line(line, LIMIT_TOKENS, counting)) == line
    assert counted < 6 * len(line)


def test_an_abstract_over_the_limit_gives_two_halves() -> None:
    """A paragraph slightly over the limit gives two chunks of similar length."""
    first, second = cut("a.txt", SENTENCE * 27)
    assert abs(first.tokens - second.tokens) <= TOKENS_PER_SENTENCE
