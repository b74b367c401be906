import random

import pytest

from store.search.keyword.spelling import allowed_edits, edit_distances, near_words
from store.search.keyword.tokenizer import words_of_piece


def distance(a: str, b: str) -> int:
    """Optimal string alignment distance, cell by cell."""
    d = [[max(i, j) if not i or not j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            differs = a[i - 1] != b[j - 1]
            d[i][j] = min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + differs)
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                d[i][j] = min(d[i][j], d[i - 2][j - 2] + 1)
    return d[-1][-1]


def test_distances_of_many_words_at_once() -> None:
    """Words of any length get the textbook distance of each, swaps included."""
    rng = random.Random(3)
    words = ["".join(rng.choices("abcä", k=rng.choice((4, 6, 9)))) for _ in range(900)]
    for length in (4, 7):
        term = "".join(rng.choices("abcä", k=length))
        expected = [distance(word, term) for word in words]
        assert edit_distances(words, term).tolist() == expected
    assert edit_distances([], "abc").tolist() == []


def test_near_words_are_those_within_the_edits() -> None:
    """No near word is left out, also where two letters differ by a multiple of 64."""
    rng = random.Random(5)
    words = [
        "".join(rng.choices("wei\u0177", k=length)) for length in (4, 5, 6) for _ in range(300)
    ]
    texts = ["".join(f"{word}\n" for word in words[at : at + 300]) for at in (0, 300, 600)]
    distances = [(distance(word, "weiwe"), word) for word in words]
    for edits in (1, 2):
        expected = [pair for pair in distances if pair[0] <= edits]
        assert 0 < len(expected) < len(words)
        assert near_words(texts, "weiwe", edits) == expected


@pytest.mark.parametrize(
    ("term", "edits"), [("row", 0), ("rows", 1), ("streams", 1), ("embedded", 2), ("x86_64", 0)]
)
def test_long_words_may_differ_more(term: str, edits: int) -> None:
    """Longer words allow more edits."""
    assert allowed_edits(term) == edits


def test_only_words_can_be_corrected_to() -> None:
    """Numbers, whole identifiers and very short or long words are not candidates."""
    assert words_of_piece("redis") == ("redi",)
    assert words_of_piece("größe") == ("größe",)
    for piece in ("2026", "ab", "x" * 31):
        assert words_of_piece(piece) == ()
    assert words_of_piece("get_loops") == ("loop",)
