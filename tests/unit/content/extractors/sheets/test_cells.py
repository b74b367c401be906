"""Names of ranges of cells."""

from __future__ import annotations

import pytest

from content.extractors.sheets import united
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


@pytest.mark.parametrize(
    ("fragments", "whole"),
    [
        (["Costs!A2:F2", "Costs!A3:F3", "Costs!A41:F41"], "Costs!A2:F41"),
        (["Costs!A9:B9", "Costs!AA10:AB10"], "Costs!A9:AB10"),
        (["'a!b'!A2:F2", "'a!b'!A3:F3"], "'a!b'!A2:F3"),
        (["A2:C2", "A3:C3"], "A2:C3"),
        (["Costs!A2:F2", "Income!A1:B1", "Income!A2:B2"], "Costs!A2:F2,Income!A1:B2"),
        (["slide=4", "Costs!A2:F2", ""], "Costs!A2:F2"),
        ([], ""),
    ],
)
def test_ranges_of_rows_are_united(fragments: list[str], whole: str) -> None:
    assert united(fragments) == whole
