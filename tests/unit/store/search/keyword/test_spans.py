"""Places of a question's terms in a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.search.keyword.spans import places_of
from store.search.keyword.tokenizer import terms


def marked(text: str, question: str) -> list[str]:
    """Marked words of a text, in order."""
    places = places_of(text, set(terms(question)))
    return [text[start:end] for start, end in sorted({at for ats in places.values() for at in ats})]


@pytest.mark.parametrize(
    ("question", "text", "words"),
    [
        ("retries", "Retry once: a retry is cheap.", ["Retry", "retry"]),
        ("connectTimeout", "set connect_timeout", ["connect", "timeout"]),
        ("connectTimeout", "connectTimeout=1", ["connect", "connectTimeout", "Timeout"]),
        ("timeout", "set connect_timeout", ["timeout"]),
        ("http responses", "def getHTTPResponse(url):", ["HTTP", "Response"]),
        ("asyncio.Queue", "use asyncio.Queue here", ["asyncio", "asyncio.Queue", "Queue"]),
        ("queue", "asyncio.Queue::queue", ["Queue", "queue"]),
        ("resume", "mon résumé, mon re\u0301sume\u0301", ["résumé", "re\u0301sume\u0301"]),
        ("東京都", "私は東京都に", ["東京", "京都"]),
        ("where is the weir", "the weir is where it is", ["weir"]),
        ("weir", "no such word", []),
        ("python3", "python3 and 3 pythons", ["python", "python3", "3", "3", "pythons"]),
    ],
)
def test_the_words_of_a_question_are_marked(question: str, text: str, words: list[str]) -> None:
    """Other forms of a word are marked too, and of an identifier the parts that match."""
    assert marked(text, question) == words


@given(st.text(max_size=80))
def test_every_term_of_a_plain_text_has_a_place(text: str) -> None:
    """Of a text that folding does not change; its places give their terms."""
    plain = "".join(letter for letter in text if letter.isascii())
    places = places_of(plain, set(terms(plain)))
    assert places.keys() == set(terms(plain))
    for term, of_term in places.items():
        assert all(term in terms(plain[start:end]) for start, end in of_term)


@given(st.text(max_size=80), st.text(max_size=20))
def test_places_lie_within_the_text_in_order(text: str, question: str) -> None:
    for of_term in places_of(text, set(terms(question))).values():
        assert of_term == sorted(of_term)
        assert all(0 <= start < end <= len(text) for start, end in of_term)
