"""Versions of chunking: an index of version 1 is cut as before until it is replayed."""

from __future__ import annotations

import hashlib

import pytest

from processors.chunking import CHUNKING_VERSION, Chunking, Source, cut
from processors.chunking.sandbox.frames import LENGTH_BYTES, request, source_from
from runtime.errors import UsageError
from tests.support.chunking import counter
from tests.support.forking import ROOT

TEXTS = (
    ("architecture.md", "markdown", None),
    ("architecture.md", "rst", None),
    ("changes.txt", "text", None),
    ("page.js", "code", "javascript"),
    ("search.py.txt", "code", "python"),
    ("search.py.txt", "code", None),
)
LIMITS = (254, 60)
FIRST_DIGESTS: dict[tuple[str, str, str | None], tuple[str, str]] = {
    ("architecture.md", "markdown", None): ("8d042a4612c100f6", "406b97d59b97d5fb"),
    ("architecture.md", "rst", None): ("d2fba1f71d66b194", "94dda74cd60bdea4"),
    ("changes.txt", "text", None): ("c6b4c0481cd68345", "6191421e5c08f568"),
    ("page.js", "code", "javascript"): ("12b50352419beb55", "0cb7116eebebe70b"),
    ("search.py.txt", "code", "python"): ("12573d679995da3b", "96cc2576735b7efd"),
    ("search.py.txt", "code", None): ("dbc3f20bb3c55448", "8f29f0df30768a62"),
}

FIRST_UNTITLED_DIGESTS: dict[tuple[str, str, str | None], str] = {
    ("page.js", "code", "javascript"): "43dea71bfeff98b6",
    ("search.py.txt", "code", "python"): "543f8b1071485c04",
    ("search.py.txt", "code", None): "ff3f322cb45210df",
}
"""Digests of code without a title, at the first limit."""


def digest(
    name: str,
    kind: str,
    language: str | None,
    limit_tokens: int,
    version: int = 1,
    title: str | None = "A title",
) -> str:
    text = (ROOT / "tests/data/chunking" / name).read_text("utf-8")
    source = Source(name, text, kind, language, title, version=version)
    chunks = [
        (
            *(c.start_line, c.end_line, c.content, c.header, c.tokens, c.symbol, c.heading_path),
            *(c.page, c.locator),
        )
        for c in cut(source, limit_tokens, counter()).chunks
    ]
    return hashlib.sha256(repr(chunks).encode()).hexdigest()[:16]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: f"{text[0]} as {text[1]} {text[2] or ''}")
def test_version_1_cuts_as_it_did(text: tuple[str, str, str | None]) -> None:
    """The chunks of version 1 are those that its only version made."""
    assert tuple(digest(*text, limit) for limit in LIMITS) == FIRST_DIGESTS[text]


@pytest.mark.parametrize(("text", "expected"), FIRST_UNTITLED_DIGESTS.items(), ids=str)
def test_version_1_puts_no_path_into_headers(
    text: tuple[str, str, str | None], expected: str
) -> None:
    """Code without a title is cut by version 1 as before, and otherwise by version 2."""
    assert digest(*text, LIMITS[0], title=None) == expected
    assert digest(*text, LIMITS[0], CHUNKING_VERSION, title=None) != expected


@pytest.mark.parametrize("text", [TEXTS[0], TEXTS[3], TEXTS[4]], ids=lambda text: text[0])
def test_version_2_cuts_otherwise(text: tuple[str, str, str | None]) -> None:
    """Texts have places that version 2 cuts in another way."""
    assert any(
        digest(*text, limit) != digest(*text, limit, version=CHUNKING_VERSION) for limit in LIMITS
    )


def test_both_versions_are_supported() -> None:
    """A recipe may name version 1 or 2, and a new one names version 2."""
    assert str(Chunking()) == "2"
    assert [Chunking.parse(text).version for text in ("1", "2", "1:128", "2:128")] == [1, 2, 1, 2]
    with pytest.raises(UsageError, match="3"):
        Chunking.parse("3")


def test_a_parser_process_gets_the_version() -> None:
    """The version travels with the document."""
    body = request(Source("a", "text", "text", version=1), 254)[LENGTH_BYTES:]
    source, _ = source_from(body)
    assert source.version == 1
