"""Parts of a line that is too long: few, and of about equal length."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from processors.chunking.packing.long_lines import cut_line, cut_sentences
from processors.chunking.packing.splitter import Bounds
from tests.support.chunking import counter, cut

LIMIT_TOKENS = 100
SENTENCE = "This sentence is about the weather in the mountains. "
TOKENS_PER_SENTENCE = 10
BOUNDS = Bounds(60, LIMIT_TOKENS, 24)


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
    counted = 0
    assert "".join(cut_sentences(line, BOUNDS, counting)) == line
    assert counted < 9 * len(line)


def test_an_abstract_over_the_limit_gives_two_halves() -> None:
    """A paragraph slightly over the limit gives two chunks of similar length."""
    first, second = cut("a.txt", SENTENCE * 27)
    assert abs(first.tokens - second.tokens) <= TOKENS_PER_SENTENCE


def story(sentences: int) -> list[str]:
    """Sentences of different words and lengths."""
    return [f"Sentence {n} has {'many ' * (n * 7 % 23)}words. " for n in range(sentences)]


def test_prose_is_cut_between_sentences_near_the_aim() -> None:
    """Parts of prose are whole sentences, over the minimum, within the limit."""
    sentences = story(80)
    parts = cut_sentences("".join(sentences), BOUNDS, counter())
    assert "".join(parts) == "".join(sentences)
    ends = {"".join(sentences[:n]) for n in range(len(sentences) + 1)}
    assert all("".join(parts[:n]) in ends for n in range(len(parts)))
    tokens = counter()(parts)
    assert BOUNDS.minimum <= min(tokens) <= max(tokens) <= BOUNDS.limit
    assert sum(tokens) / len(tokens) < BOUNDS.enough


def test_an_edit_of_one_sentence_changes_few_parts() -> None:
    """The other parts of a line of a thousand sentences stay as they are."""
    sentences = story(1_000)
    before = set(cut_sentences("".join(sentences), BOUNDS, counter()))
    for row in range(0, 1_000, 50):
        edited = [*sentences[:row], f"This is the new number {row}. ", *sentences[row + 1 :]]
        assert len(set(cut_sentences("".join(edited), BOUNDS, counter())) - before) <= 4


def test_abbreviations_end_no_sentence() -> None:
    """A point behind a title, an initial or a small letter's word is not an end."""
    line = "Ask Dr. Jones, J. Smith or Mrs. Brown (e.g. Today). They use it, cf. Fig. 3 and so on. "
    parts = cut_sentences(line + "Next is this one.", Bounds(1, LIMIT_TOKENS, 1), counter())
    assert [part.strip() for part in parts] == [
        "Ask Dr. Jones, J. Smith or Mrs. Brown (e.g. Today).",
        "They use it, cf. Fig. 3 and so on.",
        "Next is this one.",
    ]


def test_a_sentence_over_the_limit_is_cut_at_words() -> None:
    """A long sentence between short ones is cut at words, and the others stay whole."""
    long_sentence = "It goes on " + "and on " * 120 + "until here. "
    line = f"Short it begins. {long_sentence}Short it ends."
    parts = cut_sentences(line, BOUNDS, counter())
    assert "".join(parts) == line
    assert max(counter()(parts)) <= BOUNDS.limit
    assert all(part.endswith((" ", "ends.")) for part in parts)
