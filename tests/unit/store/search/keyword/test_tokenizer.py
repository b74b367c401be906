"""Terms of a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.search.keyword import tokenizer
from store.search.keyword.tokenizer import (
    EXACT,
    MAX_DEFINED_NAMES,
    MAX_IDENTIFIER_CHARACTERS,
    defined_names,
    terms,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The running servers", ["run", "server"]),
        ("getHTTPResponse", ["get", "http", "respons", "=gethttpresponse"]),
        ("_connection_pool", ["connect", "pool", "=connection_pool"]),
        ("MAX_SIZE", ["max", "size", "=max_size"]),
        ("asyncio.Queue", ["asyncio", "queue", "=asyncio.queue"]),
        ("std::vector<int>", ["std", "vector", "=std::vector", "int"]),
        ("--collect-only", ["collect", "onli"]),
        ("utf8", ["utf", "8", "=utf8"]),
        ("p53", ["53", "=p53"]),
        ("Café naïve", ["cafe", "naiv"]),
        ("Straße", ["straße"]),
        ("東京都", ["東京", "京都"]),
        ("x = y", []),
        ("", []),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    """Words give stems; identifiers give their parts and themselves."""
    assert terms(text) == expected


def test_an_identifier_is_found_however_it_is_spelt() -> None:
    """All spellings of an identifier give the same stems."""
    words = terms("parse file names")
    assert words == ["pars", "file", "name"]
    for spelling in ("parseFileNames", "parse_file_names", "ParseFileNames", "PARSE_FILE_NAMES"):
        assert [one for one in terms(spelling) if not one.startswith(EXACT)] == words


def test_encoded_data_gives_no_words() -> None:
    """A run of letters longer than any word gives no term."""
    assert terms("a" * 100) == []
    assert terms("abc_" * 100) == ["abc"] * 100


@given(st.text(max_size=300))
def test_terms_are_bounded_and_stable(text: str) -> None:
    """Any text gives short, non-empty terms without blanks, the same each time."""
    found = terms(text)
    assert found == terms(text)
    assert all(0 < len(one) <= MAX_IDENTIFIER_CHARACTERS + 1 for one in found)
    assert not any(letter.isspace() for one in found for letter in one)


def test_long_runs_are_not_remembered() -> None:
    """Terms of long runs are not cached."""
    before = len(tokenizer._remembered)
    for number in range(50):
        assert terms(f"x{number}" * 400) == terms(f"x{number}" * 400)
    assert len(tokenizer._remembered) == before


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("class Foo(Bar):\n    async def send(self):\n        local = 1\n", {"Foo", "send"}),
        ("LIMIT: int = 3\nname = other\nname == 4\n", {"LIMIT", "name"}),
        ('"""A class that waits.\n\nclass of its own kind\n"""', set()),
        ("func (c *Command) Execute() error {\ntype Flag struct {\n", {"Execute", "Flag"}),
        ("public int parse(String text) throws Bad {\n  } else if (x) {\n", {"parse"}),
        ("export const baz = () => 1\nexport async function bar(a) {\n", {"baz", "bar"}),
        ("  render() {\n    while (x) {\n", {"render"}),
        ("pub(crate) fn hey<T>(x: T) -> Y {\npub trait Seen {\n", {"hey", "Seen"}),
        ("def self.call(env)\nmodule Rack\n", {"call", "Rack"}),
        ("interface Adapter extends Other\nstruct of nodes is here", {"Adapter"}),
        ("call(a)\nreturn value\n", set()),
    ],
)
def test_lines_define_names(content: str, names: set[str]) -> None:
    """The forms of definitions in common languages are read; mentions are not definitions."""
    assert defined_names(None, content) == names


def test_a_symbol_defines_its_last_names() -> None:
    """Each unit that a symbol lists is defined, without the names around it."""
    assert defined_names("Foo.bar, Foo.baz", "") == {"bar", "baz"}
    assert defined_names("std::vector", "") == {"vector"}


def test_defined_names_are_bounded() -> None:
    """A text of definitions alone gives a limited number of names, and takes no time in square."""
    assert len(defined_names(None, "".join(f"n{i} = 1\n" for i in range(1000)))) == (
        MAX_DEFINED_NAMES
    )
    for hostile in ("public " * 20_000, "a<b> " * 20_000 + "(", "f(a " * 20_000, "\t" * 100_000):
        assert len(defined_names(None, f"{{\n{hostile}")) <= MAX_DEFINED_NAMES
