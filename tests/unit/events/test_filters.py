"""Filters of questions: what is accepted, and what is sent."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from events.models import Filters, Like, Query, QueryRequested, first_problem
from runtime import protocol_limits


def test_unused_filters_are_not_sent() -> None:
    """A worker of a version without them can answer."""
    unused = set(Filters().model_dump(exclude_none=True))
    assert unused == {"kinds", "collections", "metadata"}
    used = Filters(path_globs=("*",), languages=("go",), symbols=("x",))
    assert Filters.model_validate_json(used.model_dump_json()) == used


def test_names_are_those_that_are_stored() -> None:
    """Aliases of languages are replaced; a symbol loses the parentheses of a call."""
    filters = Filters(languages=("PY", "c++", "golang"), symbols=(" Client.ask() ",))
    assert filters.languages == ("python", "cpp", "go")
    assert filters.symbols == ("Client.ask",)
    examples = Filters.model_validate({"kinds": ["code_example"], "languages": ["Mermaid", "py"]})
    assert examples.languages == ("mermaid", "python")


PLACES: list[tuple[Any, dict[str, Any]]] = [
    ("src/a.py:12", {"uri": "src/a.py", "line": 12}),
    ("src/a.py:12-40", {"uri": "src/a.py", "line": 12}),
    ("https://example.org:80/a", {"uri": "https://example.org:80/a"}),
    ("a:b:7", {"uri": "a:b", "line": 7}),
    ("42", {"chunk_id": 42}),
    ({"uri": "42"}, {"uri": "42"}),
    ({"chunk_id": 42, "other_documents": True}, {"chunk_id": 42, "other_documents": True}),
]


@pytest.mark.parametrize(("like", "fields"), PLACES)
def test_a_place_is_read(like: Any, fields: dict[str, Any]) -> None:
    query = Query.model_validate({"project": "p", "reply_to": "r", "like": like})
    assert query.like == Like.model_validate(fields)
    event = QueryRequested(data=query)
    assert QueryRequested.from_bytes(event.to_bytes()) == event
    assert b'"text"' not in event.to_bytes()


NO_QUESTION: list[tuple[dict[str, Any], str]] = [
    ({}, "the question is empty: it needs a text, or like"),
    ({"text": "x", "like": "a:1"}, "a question has a text or like, not both"),
    ({"text": ""}, "text: must not be empty"),
    ({"text": " "}, "text: must not be empty"),
    ({"like": "a:1", "mode": "exact"}, "like has no mode exact"),
    ({"like": ""}, "like.uri: "),
    ({"like": "0"}, "like.chunk_id: "),
    ({"like": "a:0"}, "like.line: "),
    ({"like": {}}, "like: needs either chunk_id, or uri and line"),
    ({"like": {"chunk_id": 1, "uri": "a"}}, "like: needs either"),
    ({"like": {"chunk_id": 1, "line": 1}}, "like: line needs uri"),
]


@pytest.mark.parametrize(("fields", "problem"), NO_QUESTION)
def test_a_query_asks_once(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Query.model_validate({"project": "p", "reply_to": "r"} | fields)
    assert problem in first_problem(refused.value)


MANY = protocol_limits.FILTER_VALUES + 1
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"languages": ["pyhton"]}, r"^languages: unknown language 'pyhton' \(similar: python"),
    ({"languages": ["zzzzzz"]}, r"^languages: .*\(filter by kind or path\)$"),
    ({"path_globs": ["ok", "{a"]}, r"^path_globs.1: a \{ has no \}"),
    ({"path_globs": ["!"]}, r"^path_globs.0: a path pattern needs more"),
    ({"path_globs": ["a" * (protocol_limits.GLOB_CHARACTERS + 1)]}, r"^path_globs.0: .* at most"),
    ({"symbols": ["()"]}, r"^symbols.0: a symbol needs a name"),
    *(({name: ["c"] * MANY}, name) for name in ("path_globs", "languages", "symbols")),
]


@pytest.mark.parametrize(("fields", "problem"), WRONG)
def test_wrong_filters_are_named(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Filters.model_validate(fields)
    assert re.search(problem, first_problem(refused.value))
