"""Search text of a question."""

from __future__ import annotations

import pytest

from events.models import Query
from processors.answering.query_text import searchable, with_operators
from runtime.errors import UsageError


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


def query_of(text: str) -> Query:
    """Query with operators."""
    return Query(project="p", text=text, reply_to="r", operators=True)


@pytest.mark.parametrize(
    ("text", "rest", "filters"),
    [
        ("open path:store/** valve", "open  valve", {"path_globs": ["store/**"]}),
        ("-path:tests/ valve", "valve", {"path_globs": ["!tests/"]}),
        ('lang:py kind:code path:"a b" f', "f", {"languages": ["python"], "kinds": ["code"]}),
        ("symbol:Client.ask how", "how", {"symbols": ["Client.ask"]}),
        ('valve "relief at 7" -pump', "valve", {"phrases": ["relief at 7"], "without": ["pump"]}),
        ('valve -"feed pump"', "valve", {"without": ["feed pump"]}),
        ('"relief valve"', "relief valve", {"phrases": ["relief valve"]}),
        (r'\-pump \path:x \"a b"', '-pump path:x "a b"', {}),
        ("std::vector http://path:80 foo: bar -1 a-b -l lang: x", None, {}),
        ('unclosed "phrase and -kind:code', None, {}),
    ],
)
def test_operators_become_filters(
    text: str, rest: str | None, filters: dict[str, list[str]]
) -> None:
    """Operators leave the text; what only looks like one stays."""
    query = with_operators(query_of(text))
    assert query.text == (text if rest is None else rest)
    fields = query.filters.model_dump(mode="json", exclude_defaults=True)
    assert {key: fields[key] for key in filters} == filters
    assert filters or not fields
    assert query.mode == "hybrid"


@pytest.mark.parametrize(
    ("text", "pattern"), [("path:a/**", r"\S"), ("lang:go -x", None), ("symbol:f lang:go", "")]
)
def test_operators_alone_are_a_list(text: str, pattern: str | None) -> None:
    """Documents are listed by their first line, and symbols by their definitions."""
    query = with_operators(query_of(text))
    if pattern is None:
        assert query.text == "-x"
        return
    assert (query.mode, query.text) == ("exact", pattern)
    assert query.regex == query.per_file == bool(pattern)


def test_a_wrong_value_is_an_error() -> None:
    """The message names the operator and the kinds, and the remedy the way around."""
    kinds = "operator kind in the question: must be one of code, markdown, .*, book, code_example"
    with pytest.raises(UsageError, match=kinds) as caught:
        with_operators(query_of("kind:codes valve"))
    assert "backslash" in caught.value.remedy
