"""Conversion of patterns: what is refused, and what narrows the chunks."""

from __future__ import annotations

import pytest

from runtime.errors import UsageError
from store.search.keyword.tokenizer import terms
from store.search.patterns import MOST_STATES, Pattern, phrase_words, words_of_any


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        (r"def \w+\(", r"(?n)def [[:alnum:]_]+\("),
        (r"(?i)a|(?P<name>b)+?", "(?ni)a|(?:b)+?"),
        (r"[]\d\]-]\b", r"(?n)[\][:digit:]\]\-]\y"),
        (r"[^\x01-\x20]", "(?n)[^\x01-\t\v-\x20]"),
        ("a{2,}{", r"(?n)a{2,}\{"),
        (r"\S\.$", r"(?n)[^ \t\r\f\v]\.$"),
    ],
)
def test_conversion(expression: str, sql: str) -> None:
    """The syntax of users becomes that of Postgres, and no match crosses a line end."""
    assert Pattern.parse(expression, regex=True).sql == sql


@pytest.mark.parametrize(
    ("expression", "character"),
    [
        (r"(a)\1", 5),
        ("(?=a)", 1),
        ("(?<!a)b", 1),
        ("(a{200}){200}", 14),
        ("a{256}", 2),
        ("a{3,2}", 2),
        ("a**", 3),
        ("*a", 1),
        ("a|(b", 5),
        ("a)", 2),
        ("[a", 2),
        ("[b-a]", 5),
        ("a\\", 3),
        (r"\p{L}", 2),
        (r"\n", 2),
        (r"\xd8", None),
        (r"\ud800", 7),
        ("(" * 31 + ")" * 31, 31),
    ],
)
def test_a_wrong_expression_is_refused_with_its_place(
    expression: str, character: int | None
) -> None:
    """The message gives the character; the remedy is never empty."""
    if character is None:
        assert Pattern.parse(expression, regex=True).literal == "\xd8"
        return
    with pytest.raises(UsageError, match=rf"character {character}:") as caught:
        Pattern.parse(expression, regex=True)
    assert caught.value.remedy


def test_a_pattern_is_one_line() -> None:
    """A literal with a line end is refused too."""
    with pytest.raises(UsageError, match="line end"):
        Pattern.parse("a\nb")


def test_a_long_literal_is_not_an_expression() -> None:
    """The limit of repetitions is for expressions; a literal may be as long as a question."""
    assert Pattern.parse("a" * (MOST_STATES + 1)).is_literal


@pytest.mark.parametrize(
    ("pattern", "how", "literal", "words"),
    [
        ("gate", {}, "gate", ()),
        ("gate", {"whole_words": True}, "gate", (("gate",),)),
        ("the sluice gate", {}, "the sluice gate", (("sluic",),)),
        (r"\bgates\b", {"regex": True}, "gates", (("gate",),)),
        (r"^sluice gate", {"regex": True}, "sluice gate", (("sluic",),)),
        (r"sluice|gate", {"regex": True}, "", ()),
        (r"a (sluice )gate?", {"regex": True}, "a sluice gat", (("sluic",),)),
        (r"a (sluice )?gate b", {"regex": True}, "gate b", ()),
        (r"\w+ sluice \w+", {"regex": True}, " sluice ", (("sluic",),)),
        ("GitHub", {"whole_words": True, "ignore_case": True}, "", (("github", "=github"),)),
        ("mill_race", {"whole_words": True, "ignore_case": True}, "", (("=mill_race",),)),
        ("go", {"whole_words": True, "ignore_case": True}, "", ()),
    ],
)
def test_only_whole_words_are_required(
    pattern: str, how: dict[str, bool], literal: str, words: tuple[tuple[str, ...], ...]
) -> None:
    """A word that may be a part of a longer one, or may be absent, does not narrow the search."""
    parsed = Pattern.parse(pattern, **how)
    assert (parsed.literal, tuple(word.terms for word in parsed.words)) == (literal, words)
    assert all(word.text in pattern for word in parsed.words)


@pytest.mark.parametrize(
    ("pattern", "how", "is_word"),
    [
        ("gate", {"whole_words": True}, True),
        ("GATE", {"whole_words": True, "ignore_case": True}, True),
        (r"(\bgate\b)", {"regex": True}, True),
        ("^gate$", {"regex": True}, True),
        ("gate", {}, False),
        ("a gate", {"whole_words": True}, False),
        ("gates?", {"whole_words": True, "regex": True}, False),
        (r"\bgate", {"regex": True}, False),
        (r".\bgate\b", {"regex": True}, False),
        (r"(\bgate\b)+", {"regex": True}, False),
    ],
)
def test_a_match_that_is_one_word(pattern: str, how: dict[str, bool], is_word: bool) -> None:
    """It has nothing around the word, so that it is in a single chunk."""
    assert Pattern.parse(pattern, **how).is_word == is_word


def test_a_name_has_a_term_of_its_word_however_it_is_written() -> None:
    """The words of a phrase ignore the case, so their terms are those of any spelling of a name."""
    names = ("_FooBar", "__FooBar__", "_aB", "_ID", "__init__", "GitHub", "mill_race", "sha256Of")
    for name in names:
        for asked in (name, name.lower(), name.upper()):
            assert all({*terms(name)} & {*word.terms} for word in phrase_words(asked)), asked


def test_one_of_several_names_is_required() -> None:
    """Unless one of them has no term that each chunk with it has."""
    [word] = words_of_any(["mill_race", "GitHub"])
    assert word == (("=mill_race", "github", "=github"), "")
    for names in ([], ["go"], ["mill_race", "go"]):
        assert not [*words_of_any(names)]
