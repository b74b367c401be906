"""Form of API keys."""

from __future__ import annotations

import hashlib

import pytest

from runtime.secrets import masked
from store.keys.api_keys import ApiKey


def test_a_key_is_parsed_as_it_is_printed() -> None:
    """The printed form is ``hr_``, 8 characters, ``_`` and 43 characters."""
    for _ in range(200):
        key = ApiKey.new()
        assert len(key.text) == 3 + 8 + 1 + 43
        assert ApiKey.parse(key.text) == key
        assert key.digest == hashlib.sha256(key.secret.encode()).digest()
        assert key.secret not in repr(key)
        assert masked(f"hello {key.text}, bye") == f"hello hr_{key.id}_***, bye"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hr_",
        f"hr_abcd1234_{'a' * 42}",
        f"hr_abcd1234_{'a' * 44}",
        f"hr_ABCD1234_{'a' * 43}",
        f"hr_abcd1234_{'a' * 42}=",
        f"hr_abcd1234_{'a' * 43}\n",
        f" hr_abcd1234_{'a' * 43}",
        f"hr_abcd123ä_{'a' * 43}",
    ],
)
def test_another_text_is_not_a_key(text: str) -> None:
    assert ApiKey.parse(text) is None
