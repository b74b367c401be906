"""Filters of questions: what is accepted, and what is sent."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from events.models import Filters, first_problem
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


MANY = protocol_limits.FILTER_VALUES + 1
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"languages": ["pyhton"]}, r"^languages: unknown language 'pyhton': do you mean python"),
    ({"languages": ["zzzzzz"]}, "^languages: .* filter by kind or path$"),
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
