"""Names of ranges of cells."""

from __future__ import annotations

import pytest

from content.extractors.sheets.cells import column_letters, range_name


@pytest.mark.parametrize(
    ("number", "letters"),
    [(1, "A"), (26, "Z"), (27, "AA"), (52, "AZ"), (702, "ZZ"), (703, "AAA"), (16_384, "XFD")],
)
def test_columns_have_letters(number: int, letters: str) -> None:
    assert column_letters(number) == letters


@pytest.mark.parametrize(
    ("sheet", "name"),
    [
        ("Costs", "Costs!A2:F41"),
        ("", "A2:F41"),
        ("Größe_2", "Größe_2!A2:F41"),
        ("Stanley Cups", "'Stanley Cups'!A2:F41"),
        ("Q4", "'Q4'!A2:F41"),
        ("Ana's", "'Ana''s'!A2:F41"),
        ("2024", "'2024'!A2:F41"),
    ],
)
def test_ranges_are_named_as_spreadsheets_do(sheet: str, name: str) -> None:
    assert range_name(sheet, 1, 2, 6, 41) == name
