"""Values of JSON texts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from content.extractors.conversation.values import elements, instant, items, members, string
from runtime.errors import Damaged


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", []),
        (" [ 1 ,\n{},\n\n[2\n] ] \n", [(1, (1, 1)), ({}, (2, 2)), ([2], (4, 5))]),
        ('{"a":\n1}\n\n{"a": 2}\n', [({"a": 1}, (1, 2)), ({"a": 2}, (4, 4))]),
        ("", []),
    ],
)
def test_elements_have_their_lines(
    text: str, expected: list[tuple[object, tuple[int, int]]]
) -> None:
    """Elements of an array and values on lines come with their first and last line."""
    assert [(element.value, element.lines) for element in elements(text)] == expected


@pytest.mark.parametrize(
    "text",
    ["[1", "[1 2]", "[1,]", "[1] 2", "[", "{", "nonsense", "[" * 100_000, "9" * 5_000],
)
def test_damaged_json_is_refused(text: str) -> None:
    """Text that is cut off, wrong or too deep gives one kind of error."""
    with pytest.raises(Damaged, match="JSON"):
        elements(text)


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("1452837318.000002", datetime(2016, 1, 15, 5, 55, 18, 2, UTC)),
        (1452837318, datetime(2016, 1, 15, 5, 55, 18, 0, UTC)),
        (1452837318000, datetime(2016, 1, 15, 5, 55, 18, 0, UTC)),
        ("2026-03-02T10:14:00+02:00", datetime(2026, 3, 2, 8, 14, 0, 0, UTC)),
        ("2026-03-02T10:14:00Z", datetime(2026, 3, 2, 10, 14, 0, 0, UTC)),
        ("2026-03-02T10:14:00", datetime(2026, 3, 2, 10, 14, 0, 0, UTC)),
        ("0001-01-01T00:00:00+10:00", None),
        ("yesterday", None),
        ("", None),
        (True, None),
        (-1, None),
        (10**400, None),
        (1e300, None),
        (float("nan"), None),
        ({}, None),
    ],
)
def test_moments(value: object, moment: datetime | None) -> None:
    """Times of all exporters become moments in UTC; anything else has none."""
    assert instant(value) == moment


def test_values_of_another_type_are_empty() -> None:
    """Reading with a type never fails."""
    assert members([1]) == {}
    assert items({"a": 1}) == ()
    assert string(None, 1, " ", "b", "c") == "b"
