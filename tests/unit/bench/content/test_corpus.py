"""Files of a corpus, and their truths."""

from __future__ import annotations

import json
from pathlib import Path

from bench.content.corpus import expected_rows, f1, files, grids, truth_of


def test_files_are_found_by_their_suffix_in_any_folder(tmp_path: Path) -> None:
    """Files of formats without a suffix of their own are found by their folder."""
    for name in ("a.pdf", "deep/er/B.PDF", "openapi/x.json", "y.json", "csv/v.csv", "w.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert files(tmp_path, "pdf") == [tmp_path / "a.pdf", tmp_path / "deep/er/B.PDF"]
    assert files(tmp_path, "openapi") == [tmp_path / "openapi/x.json"]
    assert files(tmp_path, "csv") == [tmp_path / "csv/v.csv"]
    assert files(tmp_path, "conversation") == files(tmp_path, "word") == []


def test_facts_of_missing_files_are_left_out(tmp_path: Path) -> None:
    assert expected_rows(tmp_path) == {}
    (tmp_path / "a.pdf").touch()
    rows = [{"file": "a.pdf", "outcome": "indexed"}, {"file": "b.pdf", "outcome": "Damaged"}]
    (tmp_path / "expected.json").write_text(json.dumps(rows))
    assert expected_rows(tmp_path) == {tmp_path / "a.pdf": rows[0]}


def test_the_truth_is_named_or_stands_beside_the_document(tmp_path: Path) -> None:
    document = tmp_path / "pdf/a.pdf"
    document.parent.mkdir()
    assert truth_of(document, {}, ".txt") is None
    (tmp_path / "pdf/a.txt").touch()
    (tmp_path / "true.txt").touch()
    assert truth_of(document, {}, ".txt") == tmp_path / "pdf/a.txt"
    row = {"file": "pdf/a.pdf", "truth": "true.txt"}
    assert truth_of(document, row, ".txt") == tmp_path / "true.txt"


def test_tables_belong_to_the_document_with_the_longest_name(tmp_path: Path) -> None:
    for name, text in (("a.csv", "1,2\n"), ("a-2.csv", '"x, y"\n'), ("a-b.csv", "5\n")):
        (tmp_path / name).write_text(text)
    (tmp_path / "a-b.pdf").touch()
    assert grids(tmp_path / "a.pdf") == [[["x, y"]], [["1", "2"]]]
    assert grids(tmp_path / "a-b.pdf") == [[["5"]]]


def test_nothing_has_no_f1() -> None:
    assert f1(0, 0, 0) == 0
    assert f1(2, 4, 2) == 2 * 2 / 6
