"""Additions to scores by the names of units, and by the paths of tests."""

from __future__ import annotations

import pytest

from processors.answering.adjustments import (
    BEGINNING_BONUS,
    DOCUMENTATION_BONUS,
    NAME_BONUS,
    TEST_MALUS,
    WHOLE_NAME_BONUS,
    Adjustment,
    adjustments,
    is_test,
)
from store.search.keyword.tokenizer import terms
from store.types import Candidates, ChunkPlace

STATUS = "raise an error for a bad status"


def _bonus(
    question: str, symbol: str | None, uri: str = "src/a.py", *, is_code: bool = True
) -> float:
    """Adjustment of a chunk; 0 if it has none."""
    place = ChunkPlace(1, 0, 1, 9, 50, symbol=symbol, is_code=is_code, uri=uri)
    adjusted = _adjusted(question, place)
    return adjusted.bonus if adjusted else 0.0


def _adjusted(question: str, place: ChunkPlace) -> Adjustment | None:
    """Adjustment of the only candidate; all words of the question have equal weights."""
    weights = dict.fromkeys(terms(question), 1.5)
    candidates = Candidates({"m": [(7, 0.5)]}, [], term_weights=weights, places={7: place})
    return adjustments(question, candidates).get(7)


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


@pytest.mark.parametrize(
    ("question", "symbol", "share", "is_whole"),
    [
        ("mark a flag as required", "MarkFlagRequired", 1, True),
        ("where are required flags marked", "Command.mark_flag_required", 3 / 4, True),
        ("mark a flag as required", "MarkFlag", 1, False),
        ("mark a flag as required", "MarkFlagRequiredTogether", 3 / 4, False),
        ("mark_flag_required", "mark_flag_required", 1, False),
    ],
)
def test_a_unit_gains_by_all_words_of_its_own_name(
    question: str, symbol: str, share: float, is_whole: bool
) -> None:
    """Three words or more count, in any order; owners do not, nor identifiers in the question."""
    expected = share * NAME_BONUS + is_whole * WHOLE_NAME_BONUS
    assert _bonus(question, symbol) == pytest.approx(expected)


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
    documented = place._replace(beginning="# Raise for a status.")
    adjusted = _adjusted(STATUS, documented)
    assert adjusted is not None
    assert adjusted.reasons == ("name +0.100", "documentation +0.167", "test or example -0.100")
    assert adjusted.bonus == pytest.approx(0.1 + DOCUMENTATION_BONUS * 2 / 3 - TEST_MALUS)


@pytest.mark.parametrize(
    ("question", "documentation", "agreement"),
    [
        ("swans nest in april", "Swans nest in April.", 1),
        ("swans nest in april", "The nest of two geese.", 1 / 3),
        ("swans nest in april", "Herons fish.", 0),
        ("swans nest in april", "", 0),
        ("swans", "Swans.", 0),
        ("swan_nest swans::nest", "Swans nest.", 0),
    ],
)
def test_a_unit_gains_by_the_words_of_its_documentation(
    question: str, documentation: str, agreement: float
) -> None:
    """Both shares of common words count; a single word and identifiers do not."""
    text = f'def a():\n    """{documentation}\n\n    Swans nest in April.\n    """\n'
    place = ChunkPlace(
        1, 0, 1, 9, 50, symbol="a", is_code=True, beginning=text if documentation else "def a(): 1"
    )
    adjusted = _adjusted(question, place)
    bonus = adjusted.bonus if adjusted else 0.0
    assert bonus == pytest.approx(DOCUMENTATION_BONUS * agreement)


def test_the_beginning_of_a_unit_counts_in_its_document() -> None:
    """It changes no score, and counts only in chunks of one unit that a retriever ranks high."""
    place = ChunkPlace(1, 0, 1, 9, 50, symbol="C.go", is_code=True, beginning="def go(x):\n    1")
    assert _adjusted(STATUS, place) == Adjustment(in_document=BEGINNING_BONUS)
    assert _adjusted(STATUS, place._replace(beginning="    return go(x - 1)")) is None
    low = Candidates({}, [(key, 1.0) for key in range(99, 0, -1)], places={7: place, 90: place})
    assert adjustments(STATUS, low).keys() == {90}


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
