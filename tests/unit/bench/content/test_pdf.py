"""Figures of PDFs, against truths beside them."""

from __future__ import annotations

import json
from pathlib import Path

from bench.content.pdf import figures
from tests.support.pdf_files import PdfFile, PdfPage, prose


def table() -> PdfPage:
    page = PdfPage().text(72, 700, "Amounts of the year")
    for x in (100, 200, 300):
        page.rule(x, 400, x, 480)
    for row, y in enumerate((400, 420, 440, 460, 480)):
        page.rule(100, y, 300, y)
        if row < 4:
            page.text(105, y + 4, f"row {row}").text(205, y + 4, f"cell {row}")
    return page


def test_a_corpus_without_facts_has_figures_of_speed_and_places(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(PdfFile([PdfPage().text(72, 700, prose(9))] * 3).write())
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.7 is all there is")
    result = figures(tmp_path)
    assert (result["files"], result["pages"], result["words_under_boxes"]) == (2, 3, 1)
    assert float(result["pages_per_cpu_s"]) > 0
    assert not {"text_word_f1", "table_f1", "table_rows", "tables_in_prose"} & result.keys()


def test_text_and_tables_are_compared_with_the_files_beside(tmp_path: Path) -> None:
    """Rows from top to bottom; a wrong word and a wrong cell cost something."""
    (tmp_path / "a.pdf").write_bytes(PdfFile([table()]).write())
    rows = [f"row {row},cell {row}" for row in (3, 2, 1, 0)]
    (tmp_path / "a.csv").write_text("\n".join(rows))
    text = "Amounts of the year\n" + " ".join(row.replace(",", " ") for row in rows)
    (tmp_path / "a.txt").write_text(text)
    right = figures(tmp_path)
    assert (right["text_word_f1"], right["text_4gram_f1"], right["table_f1"]) == (1, 1, 1)
    (tmp_path / "a.csv").write_text("\n".join([*rows[:3], "row 0,cell 9"]))
    (tmp_path / "a.txt").write_text(text.replace("year", "century"))
    wrong = figures(tmp_path)
    assert 0.7 < float(wrong["table_f1"]) < 1
    assert 0.8 < float(wrong["text_word_f1"]) < 1


def test_facts_of_tables_are_checked(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(PdfFile([table()]).write())
    facts = {"rows": {"row 3": ["cell 3"], "row 2": ["cell 3"]}, "tables": 0}
    row = {"file": "a.pdf", "outcome": "NoTextLayer", "headings": ["Herons"], **facts}
    (tmp_path / "expected.json").write_text(json.dumps([row]))
    result = figures(tmp_path)
    assert (result["outcomes_as_expected"], result["headings_as_expected"]) == (0, 0)
    assert (result["share_of_table_rows"], result["tables_in_prose"]) == (0.5, 1)
