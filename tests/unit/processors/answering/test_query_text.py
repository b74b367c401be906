"""Search text of a question."""

from __future__ import annotations

import pytest

from processors.answering.query_text import searchable


@pytest.mark.parametrize(
    ("asked", "searched"),
    [
        ("fix comparison of byte strings", "fix comparison of byte strings"),
        ("fix byte string comparison (https://a.b/c/issues/5260).", "fix byte string comparison ("),
        (
            "why does https://a.b/blob/main/rewrite.py raise SyntaxError",
            "why does rewrite.py raise SyntaxError",
        ),
        ("https://a.b/c/issues/5260", "https://a.b/c/issues/5260"),
        ("what is https://a.b/c", "what is https://a.b/c"),
    ],
)
def test_addresses_are_dropped_where_words_are_left(asked: str, searched: str) -> None:
    """A web address is removed from a question if enough words are left."""
    assert searchable(asked) == searched
