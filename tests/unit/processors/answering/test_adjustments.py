"""Additions to scores by the names of units, and by the paths of tests."""

from __future__ import annotations

import pytest

from processors.answering.adjustments import NAME_BONUS, TEST_MALUS, adjustments, is_test
from store.types import ChunkPlace

STATUS = "raise an error for a bad status"


def _bonus(
    question: str, symbol: str | None, uri: str = "src/a.py", *, is_code: bool = True
) -> float:
    """Adjustment of a chunk; 0 if it has none."""
    place = ChunkPlace(1, 0, 1, 9, 50, symbol=symbol, is_code=is_code, uri=uri)
    adjusted = adjustments(question, {7: place})
    return adjusted[7].bonus if adjusted else 0.0


@pytest.mark.parametrize(
    ("symbol", "share"),
    [
        ("raise_for_status", 1),
        ("raiseForStatus", 1),
        ("Response.raise_for_status", 2 / 3),
        ("Response.raising", 1 / 2),
        ("RaiseErrors::report", 2 / 3),
        ("send", 0),
        ("raise_for_status, send", 0),
        (None, 0),
    ],
)
def test_a_unit_gains_by_the_words_of_its_name(symbol: str | None, share: float) -> None:
    """The share of a qualified name's words counts, with their stems; of several units, none."""
    assert _bonus(STATUS, symbol) == pytest.approx(share * NAME_BONUS)


def test_a_heading_gains_nothing() -> None:
    """The symbol of a chunk of a document is not the name of a unit."""
    assert _bonus(STATUS, "raise_for_status", "docs/a.md", is_code=False) == 0


def test_tests_and_examples_lose_unless_they_are_asked_for() -> None:
    """A test ranks below the code that it tests; a question about tests changes nothing."""
    assert _bonus(STATUS, "send", "tests/b.py") == -TEST_MALUS
    assert _bonus(STATUS, "raise_status", "tests/b.py") == pytest.approx(NAME_BONUS - TEST_MALUS)
    assert _bonus(STATUS, None, "examples/a.md", is_code=False) == -TEST_MALUS
    assert _bonus("where is the status tested", "send", "tests/b.py") == 0
    assert _bonus("", "send", "tests/b.py") == 0


def test_reasons_name_each_part() -> None:
    """An explanation shows what was added and what was subtracted."""
    place = ChunkPlace(1, 0, 1, 9, 50, symbol="raise_status", is_code=True, uri="tests/a.py")
    [adjustment] = adjustments(STATUS, {7: place}).values()
    assert adjustment.reasons == ("name +0.080", "test or example -0.100")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("tests/client/redirects.py", True),
        ("pkg/args_test.go", True),
        ("src/app.spec.ts", True),
        ("src/FooTest.java", True),
        ("examples/tutorial/app.py", True),
        ("src/flask/testing.py", False),
        ("src/contest.py", False),
        ("docs/testing.rst", False),
        ("src/latest/app.py", False),
    ],
)
def test_a_test_is_recognised_by_its_path(uri: str, expected: bool) -> None:
    """The name of the file or of a folder shows a test or an example."""
    assert is_test(uri) is expected
