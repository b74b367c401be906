"""``headrace bench content`` on a folder of documents of public projects."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bench.content import acceptance, context, registry
from bench.content.registry import MEASUREMENTS
from gateway.commands.bench import Measurement, command
from tests.support.cli import Cli
from tests.support.forking import ROOT

DOCUMENTS = ROOT / "tests/data/content"


def corpus(folder: Path) -> Path:
    """Documents under other names in one folder, without facts; chats need their folder."""
    paths = sorted(path for path in DOCUMENTS.rglob("*") if path.name != "README.md")
    for number, path in enumerate(path for path in paths if path.is_file()):
        kept = path.parent.name in {"conversation", "openapi"}
        target = folder / (path.parent.name if kept else "") / f"{number}{path.suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return folder


def leave_out(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    kept = {name: goals for name, goals in MEASUREMENTS.items() if name not in names}
    monkeypatch.setattr(acceptance, "MEASUREMENTS", kept)


async def test_every_kind_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows have a figure, or the reason why they are left out; no file crashes its parser.

    The hostile files and the contexts have tests of their own, and the others need the model.
    """
    leave_out(monkeypatch, "hostile", "text", "context", "semantic", "examples")
    shown: list[str] = []
    report = await acceptance.measure([corpus(tmp_path / "corpus")], shown.append)
    rows = {row.what: row for row in report.rows}
    assert rows["files: crashes"].figure == rows["files: hangs"].figure == 0
    for what in ("books: opened", "e-mail: opened", "files: opened or refused", "Word: words"):
        assert rows[what].met is True, rows[what]
    left_out = {what: row.reason for what, row in rows.items() if row.met is None}
    assert left_out["files: facts as expected"] == "the corpus has no expected.json with facts"
    assert left_out["PDF text: words F1"] == "the corpus has no .txt beside a .pdf"
    assert {"pdf: process_mb", "sheet: process_mb", "html: process_cpu_s"} <= report.figures.keys()
    assert report.figures["pdf: files"] == 7
    assert shown[:2] == ["measuring outcomes", "measuring pdf"]


def test_contexts_are_measured(tmp_path: Path) -> None:
    """In this process, whose workers are forked."""
    rows = {row.what: row for row in registry.rows("context", context.figures(corpus(tmp_path)))}
    assert [row.met for row in rows.values()] == [True, True, True]
    assert rows["contexts: requests per window"].figure == 1


@pytest.mark.parametrize("as_json", [True, False])
def test_rows_are_printed_with_their_goals(
    as_json: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    leave_out(monkeypatch, *MEASUREMENTS.keys() - {"notebook"})
    cells = [{"cell_type": "code", "source": "x = 1", "outputs": []}]
    notebook = {"nbformat": 4, "metadata": {}, "cells": cells}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    command(Measurement.CONTENT, [tmp_path], json=as_json)
    printed = capsys.readouterr().out
    if as_json:
        [_, row] = json.loads(printed)["rows"]
        assert (row["what"], row["figure"]) == ("notebooks: code cells verbatim", 1)
        assert (row["goal"], row["met"], row["reason"]) == ("= 1", True, "")
    else:
        [line] = [line for line in printed.splitlines() if "verbatim" in line]
        assert line.split() == ["notebooks:", "code", "cells", "verbatim", "=", "1", "yes", "1"]


async def test_a_failed_measurement_fails_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out(monkeypatch, *MEASUREMENTS.keys() - {"outcomes"})
    (tmp_path / "expected.json").write_text("no list")
    report = await acceptance.measure([tmp_path], print)
    assert {row.met for row in report.rows} == {False}
    assert {row.reason for row in report.rows} == {"the measurement of outcomes ended with 1"}


async def test_a_corpus_must_be_a_folder_with_files(tmp_path: Path) -> None:
    for arguments in ([], [str(tmp_path)], [str(tmp_path / "none")], ["a", "b"]):
        result = await Cli({})("bench", "content", *arguments)
        assert "name a folder with documents" in result.line
