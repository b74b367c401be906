"""Tables of a page, by rulings and by alignment."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from content.extractors.pdf import tables
from content.extractors.pdf.cells import Table
from content.extractors.pdf.rulings import Edge, Rulings
from content.extractors.pdf.tables import find_tables
from content.extractors.pdf.words import Word
from content.rendition import Box

PAGES = 20
SIZE = 10.0


class Sheet:
    """Words and rulings of a page; each character is 5 points wide."""

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.rulings = Rulings()

    def write(self, x: float, y: float, text: str) -> None:
        for word in text.split():
            right = x + 5 * len(word)
            number = len(self.words)
            self.words.append(Word(number, word, x, y, right, y + SIZE, SIZE, SIZE, line=number))
            x = right + 5

    def rows(self, top: float, columns: Sequence[float], rows: Sequence[Sequence[str]]) -> None:
        for number, row in enumerate(rows):
            for x, cell in zip(columns, row, strict=True):
                self.write(x, top - 14 * number, cell)

    def grid(self, columns: Sequence[float], rows: Sequence[float]) -> None:
        for x in columns:
            self.rulings.down.append(Edge(x, rows[-1], rows[0]))
        for y in rows:
            self.rulings.across.append(Edge(y, columns[0], columns[-1]))

    def tables(self) -> list[Table]:
        return find_tables(self.words, self.rulings, PAGES)

    def lines(self) -> list[list[str]]:
        return [[row.text for row in table.rows()] for table in self.tables()]


PRICES = [
    ["Item", "Unit", "Price"],
    ["Corn", "bushel", "3.70"],
    ["Soy beans", "bushel", "10.15"],
    ["Wheat", "bushel", "4.52"],
    ["Milk", "gallon", "2.20"],
]
PRICE_LINES = [
    "| Item | Unit | Price |",
    "| --- | --- | --- |",
    "| Corn | bushel | 3.70 |",
    "| Soy beans | bushel | 10.15 |",
    "| Wheat | bushel | 4.52 |",
    "| Milk | gallon | 2.20 |",
]


def test_a_ruled_grid_is_a_table() -> None:
    sheet = Sheet()
    sheet.rows(602, [105, 205], [["Name", "Age"], ["Ana", "31"]])
    sheet.grid([100, 200, 300], [614, 600, 586])

    assert sheet.lines() == [["| Name | Age |", "| --- | --- |", "| Ana | 31 |"]]


def test_a_missing_edge_joins_two_cells() -> None:
    sheet = Sheet()
    sheet.write(150, 602, "Over both columns")
    sheet.rows(588, [105, 205], [["Ana", "31"], ["Ben", "42"]])
    sheet.grid([100, 300], [614, 600, 586, 572])
    sheet.rulings.down.append(Edge(200, 572, 600))

    assert sheet.lines() == [
        ["| Over both columns |  |", "| --- | --- |", "| Ana | 31 |", "| Ben | 42 |"]
    ]


def test_a_ruled_row_whose_cells_hold_equal_lines_is_several_rows() -> None:
    sheet = Sheet()
    sheet.rows(
        602,
        [105, 205, 305],
        [
            ["State", "Permit", "Gun"],
            ["Alabama", "18", "22"],
            ["Alaska", "2", "3"],
            ["Ohio", "9", "4"],
        ],
    )
    sheet.grid([100, 200, 300, 400], [614, 600, 558])

    assert sheet.lines() == [
        [
            "| State | Permit | Gun |",
            "| --- | --- | --- |",
            "| Alabama | 18 | 22 |",
            "| Alaska | 2 | 3 |",
            "| Ohio | 9 | 4 |",
        ]
    ]


def test_a_cell_of_several_lines_stays_one_cell() -> None:
    sheet = Sheet()
    sheet.write(105, 602, "Name")
    sheet.write(205, 602, "Address")
    sheet.write(105, 588, "Ana")
    sheet.write(205, 588, "12 Long Street")
    sheet.write(205, 574, "Springfield")
    sheet.grid([100, 200, 300], [614, 600, 570])

    assert sheet.lines() == [
        ["| Name | Address |", "| --- | --- |", "| Ana | 12 Long Street Springfield |"]
    ]


def test_a_grid_that_only_frames_a_table_does_not_divide_its_rows() -> None:
    sheet = Sheet()
    sheet.rows(602, [105, 205, 305], PRICES)
    for number, tick in enumerate(("8.0", "6.0", "4.0", "2.0")):  # a chart beside it
        sheet.write(410, 607 - 19 * number, tick)
    sheet.grid([100, 400, 500], [616, 540])

    assert PRICE_LINES in sheet.lines()


def test_cells_with_borders_of_their_own_are_a_table() -> None:
    sheet = Sheet()
    for row, cells in enumerate((["Name", "Age", "City"], ["Ana", "31", "Ulm"])):
        for column, cell in enumerate(cells):
            left, bottom = 100 + 106 * column, 600 - 26 * row
            sheet.write(left + 5, bottom + 5, cell)
            sheet.grid([left, left + 100], [bottom + 20, bottom])
    for x in (100, 412):  # the frame around them
        sheet.rulings.down.append(Edge(x, 574, 620))
    for y in (574, 597, 620):
        sheet.rulings.across.append(Edge(y, 100, 412))

    assert sheet.lines() == [["| Name | Age | City |", "| --- | --- | --- |", "| Ana | 31 | Ulm |"]]


def test_the_grid_of_a_chart_is_not_a_table() -> None:
    sheet = Sheet()
    sheet.grid([100, 150, 200, 250, 300], [600, 550, 500, 450, 400])
    for text, x, y in (("8", 105, 560), ("6", 105, 460), ("peak", 210, 510), ("low", 260, 410)):
        sheet.write(x, y, text)

    assert sheet.tables() == []


def test_aligned_rows_are_a_table() -> None:
    sheet = Sheet()
    sheet.rows(600, [100, 220, 340], PRICES)

    assert sheet.lines() == [PRICE_LINES]


def test_rows_between_two_rules_of_one_width_are_a_table() -> None:
    sheet = Sheet()
    sheet.write(100, 640, "Prices of a week:")
    sheet.rows(600, [100, 220, 340], PRICES)
    sheet.rulings.across += [Edge(612, 90, 400), Edge(540, 90, 400)]

    assert sheet.lines() == [PRICE_LINES]


CITY_LINES = [
    "| City | Known for | Since |",
    "| --- | --- | --- |",
    "| Genoa | harbour and narrow old streets | 1805 |",
    "| Ulm | the tallest church tower | 854 |",
    "| New Orleans | music | 1718 |",
]


def write_cities(sheet: Sheet, leading: int) -> None:
    """Write a table of which some cells have two lines; single lines stand at their middle."""
    columns = [100, 220, 340]
    rows = [
        [["City"], ["Known for"], ["Since"]],
        [["Genoa"], ["harbour and", "narrow old streets"], ["1805"]],
        [["Ulm"], ["the tallest", "church tower"], ["854"]],
        [["New", "Orleans"], ["music"], ["1718"]],
    ]
    top = 600.0
    for row in rows:
        most = max(map(len, row))
        for x, cell in zip(columns, row, strict=True):
            for number, line in enumerate(cell):
                sheet.write(x, top - 11 * number - 5.5 * (most - len(cell)), line)
        top -= 11 * most + leading


def test_cells_of_several_lines_without_rules_are_one_row() -> None:
    sheet = Sheet()
    write_cities(sheet, leading=5)

    assert sheet.lines() == [CITY_LINES]


def test_rules_between_rows_divide_cells_of_several_lines() -> None:
    """The gaps between the rows are no wider than those inside a cell; the head has no rule."""
    sheet = Sheet()
    write_cities(sheet, leading=1)
    sheet.rulings.across += [Edge(y, 90, 420) for y in (598.5, 575.5, 551.5, 527.5)]

    assert sheet.lines() == [CITY_LINES]


def test_groups_of_rows_with_numbers_stay_rows() -> None:
    """A wider gap after each group does not make the group one row."""
    sheet = Sheet()
    sheet.rows(600, [100, 220, 340], PRICES[1:3])
    sheet.rows(560, [100, 220, 340], PRICES[3:])

    (lines,) = sheet.lines()
    assert len(lines) == len(PRICES)


def test_items_of_a_list_are_not_a_table() -> None:
    sheet = Sheet()
    for number, ordinal in enumerate(("first", "second", "third")):
        sheet.write(100, 600 - 30 * number, f"{number + 1}.")
        sheet.write(130, 600 - 30 * number, f"a {ordinal} item of one list, which does")
        sheet.write(130, 589 - 30 * number, "not end with its first line")

    assert sheet.tables() == []


def test_a_ruled_row_of_texts_in_several_lines_is_one_row() -> None:
    sheet = Sheet()
    sheet.rows(602, [105, 205, 305], [["Name", "Street", "Town"]])
    sheet.rows(588, [105, 205, 305], [["Ana", "Long", "Spring"], ["Smith", "Lane", "Valley"]])
    sheet.grid([100, 200, 300, 400], [614, 600, 570])

    assert sheet.lines()[0][2] == "| Ana Smith | Long Lane | Spring Valley |"


def test_a_head_over_columns_that_nearly_touch_does_not_join_them() -> None:
    """One row of many may cross a gap that all others leave free."""
    sheet = Sheet()
    sheet.write(100, 614, "Item")
    sheet.write(220, 614, "Kilometres of road by rail")
    sheet.rows(600, [100, 220, 340], [*PRICES[1:], *PRICES[1:]])

    (lines,) = sheet.lines()
    assert lines[2] == PRICE_LINES[2]


def test_two_columns_of_prose_are_not_a_table() -> None:
    sheet = Sheet()
    for number in range(12):
        sheet.write(72, 700 - 12 * number, "some words of a left column")
        sheet.write(320, 700 - 12 * number, "more words on the right side")

    assert sheet.tables() == []


def test_three_narrow_columns_of_prose_are_not_a_table() -> None:
    sheet = Sheet()
    for number, x in product(range(12), (72, 240, 400)):
        sheet.write(x, 700 - 12 * number, "quite narrow column of prose")

    assert sheet.tables() == []


def test_a_table_of_contents_is_not_a_table() -> None:
    sheet = Sheet()
    titles = ["Introduction", "Methods", "Results", "Discussion", "References"]
    sheet.rows(
        600,
        [72, 100, 400],
        [[str(number), title, str(3 * number)] for number, title in enumerate(titles, 1)],
    )

    assert sheet.tables() == []


def test_an_index_is_not_a_table() -> None:
    sheet = Sheet()
    terms = ["Chart, 12", "Circle, 14, 19", "Curve, 7", "Degree, 33", "Disk, 8"]
    sheet.rows(600, [72, 320], list(zip(terms, reversed(terms), strict=True)))

    assert sheet.tables() == []


def test_formulas_are_not_a_table() -> None:
    sheet = Sheet()
    sheet.rows(
        600, [100, 220, 340], [["∀ x", "∃ y", "∧ ∧"], ["⇒ ∀", "∈ ∉", "∩ ∩"], ["∂ ∂", "∇", "∞"]]
    )

    assert sheet.tables() == []


def test_right_to_left_text_is_not_a_table() -> None:
    sheet = Sheet()
    sheet.rows(600, [100, 220, 340], [["שלום", "עולם", "12"]] * 5)

    assert sheet.tables() == []


def test_bars_in_cells_are_escaped() -> None:
    sheet = Sheet()
    sheet.rows(602, [105, 205], [["a|b", "c"], ["d", "\\"]])
    sheet.grid([100, 200, 300], [614, 600, 586])

    assert sheet.lines() == [["| a\\|b | c |", "| --- | --- |", "| d | \\\\ |"]]


def test_the_box_of_a_row_is_around_its_words() -> None:
    sheet = Sheet()
    sheet.rows(600, [100, 220, 340], PRICES)

    rows = sheet.tables()[0].rows()

    assert rows[2].box == Box(100, 586, 360, 596)
    assert rows[0].box == rows[1].box


def test_pages_of_very_many_words_are_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = Sheet()
    sheet.rows(600, [100, 220, 340], PRICES)
    monkeypatch.setattr(tables, "MOST_WORDS", len(sheet.words) - 1)

    assert sheet.tables() == []


def test_grids_are_looked_at_up_to_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = Sheet()
    for top in (614, 414):
        sheet.rows(top - 12, [105, 205], [["Name", "Age"], ["Ana", "31"]])
        sheet.grid([100, 200, 300], [top, top - 14, top - 28])
    before = len(sheet.tables())
    monkeypatch.setattr(tables, "MOST_GRIDS", 1)

    assert (before, len(sheet.tables())) == (2, 1)
