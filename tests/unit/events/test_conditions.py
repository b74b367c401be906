"""Conditions on fields: what is read of a text, and what is refused with the place of the error."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from events.condition_text import parsed
from events.conditions import Where, period
from events.models import Filters, Query, QueryRequested, first_problem
from runtime import protocol_limits

READ: list[tuple[str, dict[str, Any]]] = [
    ("version >= 3", {"field": "version", "op": "gte", "value": 3}),
    ("v=1e3", {"field": "v", "op": "eq", "value": 1000.0}),
    ("v <> -0.5", {"field": "v", "op": "ne", "value": -0.5}),
    ("v == 'it\\'s 3'", {"field": "v", "op": "eq", "value": "it's 3"}),
    ('"and" = "3"', {"field": "and", "op": "eq", "value": "3"}),
    ("live = TRUE", {"field": "live", "op": "eq", "value": True}),
    ("metadata.title exists", {"field": "metadata.title", "op": "exists"}),
    ("d between 2026-03-01 and 2026-03-02T10:00Z", {
        "field": "d", "op": "between", "value": ["2026-03-01", "2026-03-02T10:00Z"],
    }),
    ("team in (a,'b, c', 3)", {"field": "team", "op": "in", "value": ["a", "b, c", 3]}),
    ("t NOT LIKE 'a%'", {"not": {"field": "t", "op": "like", "value": "a%"}}),
    ("t not in (a)", {"not": {"field": "t", "op": "in", "value": ["a"]}}),
    ("not not (a=1)", {"not": {"not": {"field": "a", "op": "eq", "value": 1}}}),
    ("a=1 or b=2 and c=3", {"or": [
        {"field": "a", "op": "eq", "value": 1},
        {"and": [
            {"field": "b", "op": "eq", "value": 2},
            {"field": "c", "op": "eq", "value": 3},
        ]},
    ]}),
    ("(a=1 or b=2) and not c=3", {"and": [
        {"or": [
            {"field": "a", "op": "eq", "value": 1},
            {"field": "b", "op": "eq", "value": 2},
        ]},
        {"not": {"field": "c", "op": "eq", "value": 3}},
    ]}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "conditions"), READ)
def test_a_text_is_read(text: str, conditions: dict[str, Any]) -> None:
    assert parsed(text) == conditions
    assert Filters.model_validate({"where": text}).where == Where.model_validate(conditions)


UNREADABLE = [
    ("", "at the end: the name of a field is missing"),
    ("a", r"at the end: an operator .* is missing"),
    ("a = ", "at the end: a value is missing"),
    ("a = 1 b", "at character 7: and, or, or the end instead of 'b'"),
    ("and = 1", "at character 1: the name of a field"),
    ("(a = 1", r"at the end: and, or, or \) is missing"),
    ("a in b", r"at character 6: \( and a list"),
    ("a in (b", "at the end: , or"),
    ("a in ()", "at character 7: a value"),
    ("a not = 1", "at character 7: an operator"),
    ("a between 1", "at the end: and is missing"),
    ("a = 'b", "at character 5: an unexpected quotation mark"),
    ("a ! 1", "at character 3"),
    ("(" * 99 + "a=1" + ")" * 99, "nested over 8 levels"),
    ("not " * 9 + "a=1", "nested over 8 levels"),
    ("a=" + "1" * protocol_limits.CONDITION_CHARACTERS, "over 4,000 characters"),
    (" and ".join(["a=1"] * 65), "over 64 conditions"),
]


@pytest.mark.parametrize(("text", "problem"), UNREADABLE)
def test_an_unreadable_text_is_refused_with_its_place(text: str, problem: str) -> None:
    assert re.search(f"^where: .*{problem}", problem_of(text))


WRONG: list[tuple[Any, str]] = [
    ({}, "where: needs either field and op, or one of"),
    ({"field": "a"}, "where: needs both field and op"),
    ({"op": "eq", "value": 1}, "where: needs both field and op"),
    ({"field": "a", "op": "eq"}, "where: eq needs a value"),
    ({"field": "a", "op": "is", "value": 1}, "where.op: "),
    ({"field": "", "op": "exists"}, "where.field: "),
    ({"field": "a", "op": "eq", "value": None}, "where: eq needs a value"),
    ({"field": "a", "op": "eq", "value": float("inf")}, "where.value: must be a text"),
    ({"field": "a", "op": "eq", "value": {"b": 1}}, "where.value: must be a text"),
    ({"field": "a", "op": "eq", "value": [1]}, "where.value: eq needs one value"),
    ({"field": "a", "op": "in", "value": 1}, "where.value: in needs a list"),
    ({"field": "a", "op": "in", "value": []}, "where.value"),
    ({"field": "a", "op": "in", "value": [1] * 257}, "where.value: .* list of 1 to 256"),
    ({"field": "a", "op": "between", "value": [1]}, "where.value: between needs a list of two"),
    ({"field": "a", "op": "between", "value": [1, "2"]}, "where.value: .* of one type"),
    ({"field": "a", "op": "between", "value": ["2026-01-01", "b"]}, "where.value: .* both"),
    ({"field": "a", "op": "gt", "value": True}, "where.value: true and false have no order"),
    ({"field": "a", "op": "exists", "value": False}, "where.value: exists has no value"),
    ({"field": "a", "op": "like", "value": 5}, "where.value: like needs a text"),
    ({"field": "a", "op": "like", "value": "b\\"}, "where.value: a backslash at the end"),
    ({"field": "a", "op": "eq", "value": "\x00"}, "where.value"),
    ({"field": "uri", "op": "eq", "value": 5}, "where.value: uri is compared with texts"),
    ({"field": "kind", "op": "eq", "value": "codee"}, "where.value: 'codee' is not a kind"),
    ({"field": "kind", "op": "gt", "value": "code"}, "where.op: kind has no gt: use eq, ne"),
    ({"field": "language", "op": "in", "value": ["pyhton"]}, "where.value: .*similar: python"),
    ({"field": "changed_at", "op": "gt", "value": "May"}, "where.value: needs a date or time"),
    ({"field": "changed_at", "op": "gt", "value": "2026-02-30"}, "where.value: needs a date"),
    ({"and": []}, "where.and"),
    ({"and": [{"field": "a", "op": "exists"}], "field": "b"}, "where: needs either"),
    ({"and": [{"field": "a", "op": "exists"}, {"not": {"or": [{"op": "eq"}]}}]},
     "where.and.1.not.or.0: needs both"),
    ({"and": [{"field": "a", "op": "exists"}], "sql": "true"}, "where.sql: is unknown"),
    ([], "where: "),
    (5, "where: "),
    ({"and": {"field": "a"}}, "where.and"),
]  # fmt: skip


@pytest.mark.parametrize(("where", "problem"), WRONG)
def test_a_wrong_condition_is_refused_with_its_path(where: Any, problem: str) -> None:
    assert re.search(f"^{problem}", problem_of(where))


def test_sizes_are_checked_before_anything_is_read() -> None:
    """A value that is nested very deeply costs no recursion."""
    deep: dict[str, Any] = {"field": "a", "op": "exists"}
    for _ in range(5_000):
        deep = {"not": deep}
    assert "nested over 8 levels" in problem_of(deep)
    many = {"or": [{"field": "a", "op": "exists"}] * protocol_limits.CONDITIONS}
    assert "over 64 conditions" in problem_of(many)


def test_values_are_normalized() -> None:
    where = Filters.model_validate({"where": "language in (py, C++)"}).where
    assert where is not None
    assert where.value == ("python", "cpp")


@given(st.text(max_size=60))
def test_any_text_is_conditions_or_a_problem(text: str) -> None:
    """Whatever is read survives the way through an event, in its short names."""
    problem = ""
    try:
        filters = Filters.model_validate({"where": text})
    except ValidationError as error:
        problem = first_problem(error)
    if problem:
        assert problem.startswith("where")
        return
    query = Query(project="p", text="x", reply_to="r", filters=filters)
    event = QueryRequested(data=query)
    assert QueryRequested.from_bytes(event.to_bytes()) == event


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("2026-03-01", "2026-03-01T00:00:00+00:00", "2026-03-02T00:00:00+00:00"),
        ("2026-03-01T10:00", "2026-03-01T10:00:00+00:00", None),
        ("2026-03-01 10:00:05.25-0130", "2026-03-01T11:30:05.250000+00:00", None),
        ("2026-03-01T10:00Z", "2026-03-01T10:00:00+00:00", None),
    ],
)
def test_periods(text: str, begin: str, end: str | None) -> None:
    time = period(text)
    assert time is not None
    assert time.begin.isoformat() == begin
    assert (time.end and time.end.isoformat()) == end


@pytest.mark.parametrize(
    "text", ["2026", "2026-3-1", "2026-02-29", "2026-03-01T25:00", "9999-12-31", "10:00", "x"]
)
def test_other_texts_are_no_periods(text: str) -> None:
    assert period(text) is None


def problem_of(where: Any) -> str:
    with pytest.raises(ValidationError) as refused:
        Filters.model_validate({"where": where})
    return first_problem(refused.value)
