"""Path patterns, compared with those of ``.gitignore``."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from events.globs import expression, literal

PARTS = ["a", "b", ".c", "*", "**", "?", "/", "[ab]", "\\*", "a*b", "**/", "/**"]
URIS = [
    *("a", "b", ".c", "ab", "a/b", "b/a", "a/b/a", ".c/b/a/ab", "a*b", "*", "a/*", "aab/b"),
    *("ab/.c", "a/a/a/b", "b/b.c", "axb/a"),
]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=5).map("".join))
def test_patterns_match_as_in_git(pattern: str) -> None:
    """Except for three stars or more, and for ``**/`` at the end: pathspec differs from git."""
    if re.search(r"\*{3}|//|\*\*/$", pattern) or not pattern.strip("/"):
        return
    spec = GitIgnoreSpec.from_lines([pattern])
    compiled = re.compile(expression(pattern), re.DOTALL)
    for uri in URIS:
        assert bool(compiled.search(uri)) == spec.match_file(uri), (pattern, uri)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.{py,pyi}", ["a.py", "x/a.pyi"], ["a.pyx", "a.py,pyi"]),
        ("{src,docs/**}/*.md", ["src/a.md", "docs/x/y/a.md"], ["docs/a.md", "a/src/a.md"]),
        ("{a,{b,c}}x", ["ax", "bx", "cx"], ["x", "a,x"]),
        ("\\{a\\}", ["{a}", "x/{a}/y"], ["a"]),
        ("a,b}", ["a,b}"], ["a", "b"]),
        ("[a-c\\]]x", ["bx", "]x"], ["dx", "\\x"]),
        ("[]a]x", ["]x", "ax"], ["x"]),
        ("[a-]x", ["ax", "-x"], ["bx"]),
        ("[^a]x", ["bx"], ["ax", "/x"]),
        ("https://example.org/**", ["https://example.org/a"], ["https://example.org"]),
        ("a.b$(c)+|d", ["a.b$(c)+|d"], ["axb$(c)+|d", "d"]),
        ("ü?.md", ["üß.md"], ["u1.md", "ü/.md"]),
        ("a\nb", ["a\nb", "x\n/a\nb/y\n"], ["a", "b", "a\nb\n"]),
    ],
)
def test_patterns_beyond_git(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = re.compile(expression(pattern), re.DOTALL)
    assert [uri for uri in [*matching, *others] if compiled.search(uri)] == matching


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "more than slashes"),
        ("//", "more than slashes"),
        ("[ab", r"a \[ has no \]"),
        ("[]", r"a \[ has no \]"),
        ("[b-a]", "range b-a is empty"),
        ("[/]", "must not contain /"),
        ("[.-0]", "must not contain /"),
        ("[[:alpha:]]", "named classes"),
        ("{a,b", r"a \{ has no \}"),
        ("a\\", r"no character after it"),
        ("[\\", r"no character after it"),
    ],
)
def test_unfinished_patterns_are_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        expression(pattern)


@given(st.text())
def test_a_literal_matches_itself_only(text: str) -> None:
    assert re.fullmatch(literal(text), text)
    assert not re.fullmatch(literal(text), f"{text}x")
