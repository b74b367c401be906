"""Output to a terminal."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from events.models import (
    Citation,
    Kind,
    OtherMatch,
    QueryAnswer,
    Scores,
    SearchResult,
    SourceLines,
)
from events.names import Topic
from events.streams.backlog import Backlog
from gateway.answer_view import print_answer, print_results
from gateway.commands import doctor, document, sync
from gateway.line_view import LinePrinter
from gateway.output import print_json, printable, stdout, table
from gateway.status.rows import stream_row
from gateway.sync.report import SyncReport
from processors.doctor.doctor import Health
from sources import Reason
from sources.comparison import Step


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "\x1b]0;title\x07", "\r", "\x9b31m", "\x00", "\x0b", "\u202e"]
)
def test_nothing_that_a_terminal_obeys_is_printed(hostile: str) -> None:
    """Control characters of a document are replaced before they are printed."""
    shown = printable(f"before{hostile}after")
    assert shown.isprintable()
    assert shown.startswith("before\N{REPLACEMENT CHARACTER}")


def test_text_stays_as_it_is() -> None:
    """Lines, tabs, accents and other scripts are printed unchanged."""
    text = "a\tb\n    naïve — 水路\u00a0🛶\n"
    assert printable(text) == text


def notes(coverage: float, *degraded: str) -> str:
    """Last lines of an answer without results."""
    answer = QueryAnswer(
        query_id="1",
        project="docs",
        results=(),
        watermark={},
        coverage=coverage,
        degraded=degraded,
    )
    console = Console(width=120, file=io.StringIO())
    with console.capture() as shown:
        print_answer(console, answer, "herons")
    return shown.get()


def test_an_answer_names_missing_vectors_in_one_line() -> None:
    """Missing vectors and failed retrievers are reported separately."""
    assert "62% of the chunks searched have vectors" in notes(0.62, "vector")
    assert "degraded" not in notes(0.62, "vector")
    assert "degraded: could not search keyword" in notes(0.62, "vector", "keyword")
    assert "degraded: could not search vector" in notes(1.0, "vector")
    assert "chunks searched" not in notes(1.0)


def found(content: str) -> SearchResult:
    return SearchResult(
        chunk_id=1,
        content=content,
        kind=Kind.TEXT,
        citation=Citation(uri="a.txt", start_line=1, end_line=2),
        scores=Scores(fused=0.5),
        match_type="keyword",
    )


def test_scores_are_for_who_asks_for_them(capsys: pytest.CaptureFixture[str]) -> None:
    """Scores are printed only with --explain."""
    print_results(Console(), [found("Herons nest.")], "herons")
    assert "score" not in capsys.readouterr().out
    print_results(Console(), [found("Herons nest.")], "herons", explain=True)
    assert "keyword match · score 0.500" in capsys.readouterr().out


def test_places_of_one_long_line_are_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Chunks of the line that is cited are no further places; names in it are."""
    update = {
        "citation": Citation(uri="a.txt", start_line=1, end_line=1),
        "other_matches": tuple(
            OtherMatch(chunk_id=2, start_line=1, end_line=1, symbol=symbol, score=0.1)
            for symbol in (None, "fly", None, "fly")
        ),
    }
    print_results(Console(), [found("Herons nest.").model_copy(update=update)], "herons")
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if "also" in line] == ["   also 1-1  fly"]


def test_a_uri_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A line break in a uri is printed as an escape by every command that prints uris."""
    cited = Citation(uri="a\nb\t.txt", start_line=1, end_line=2)
    result = found("Herons nest.").model_copy(update={"citation": cited, "title": "x\ny"})
    print_results(Console(), [result], "herons")
    assert capsys.readouterr().out.startswith(r"1. a\nb\t.txt:1-2  x\ny")
    answer = QueryAnswer(query_id="1", project="docs", results=(result,), watermark={}, coverage=1)
    printer = LinePrinter(json=False, uris=True, counts=False, separate=False)
    printer.answer(answer)
    assert capsys.readouterr().out == "a\\nb\\t.txt\n"
    step = Step("delete", "a\nb.txt", Reason.DELETED)
    report = SyncReport("docs", "/docs", "directory", skipped_paths={"c\nd": "binary"})
    sync._print_preview(report, [step], skipped=True, json=False)
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[2]) == (r"to delete: a\nb.txt", r"skipped (binary): c\nd")
    fields = ("agent", "kind", "chunks", "pending", "commit", "token")
    row = SimpleNamespace(uri="a\nb.txt", **dict.fromkeys(fields))
    assert document._row(cast("Any", row), overlays=False)["uri"] == r"a\nb.txt"


@pytest.mark.parametrize(
    ("count", "expected"), [(1, "1 document of mine is"), (1200, "1,200 documents of mine are")]
)
def test_one_document_has_no_plural(count: int, expected: str) -> None:
    """The question before a deletion agrees with the number of documents."""
    assert document._are(["a.md"] * count, "mine") == expected


def test_sections_have_headings(capsys: pytest.CaptureFixture[str]) -> None:
    """Each section has numbers of its own; a single one has no heading."""
    code = [found("herons = 1").model_copy(update={"section": "code"})] * 2
    pages = [found("Herons nest.").model_copy(update={"section": "documents"})]
    print_results(Console(), [*code, *pages], "herons")
    lines = capsys.readouterr().out.splitlines()
    heads = [line for line in lines if line and not line.startswith(" ")]
    assert heads == ["code", "1. a.txt:1-2", "2. a.txt:1-2", "documents", "1. a.txt:1-2"]
    print_results(Console(), code, "herons")
    assert capsys.readouterr().out.startswith("1. a.txt")


def test_the_definition_and_the_other_matches_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The definition is above the lines, from the answer or from the passage; matches are below."""
    update: dict[str, object] = {
        "kind": Kind.CODE,
        "definition": (SourceLines(start_line=3, text="def nest(\n    month,\n):"),),
        "other_matches": (
            OtherMatch(chunk_id=2, start_line=40, end_line=52, symbol="Heron.fly", score=0.1),
            OtherMatch(chunk_id=3, start_line=40, end_line=52, symbol="Heron.fly", score=0.1),
        ),
    }
    for start_line, between in ((6, []), (9, [["…"]])):
        update["citation"] = Citation(uri="a.py", start_line=start_line, end_line=start_line)
        print_results(Console(), [found("    herons += 1").model_copy(update=update)], "herons")
        lines = capsys.readouterr().out.splitlines()
        assert [line.split() for line in lines[1 : 5 + len(between)]] == [
            ["3", "def", "nest("],
            ["4", "month,"],
            ["5", "):"],
            *between,
            [str(start_line), "herons", "+=", "1"],
        ]
        assert lines[5 + len(between) :] == ["   also 40-52  Heron.fly", ""]
    body = "\n".join(["def nest(month):", *["    swans += 1"] * 20, "    herons += 1"])
    cited = Citation(uri="a.py", start_line=1, end_line=22, symbol="nest")
    print_results(
        Console(),
        [found(body).model_copy(update={"kind": Kind.CODE, "citation": cited})],
        "herons",
    )
    assert "1  def nest(month):" in capsys.readouterr().out


@pytest.mark.parametrize("colours", ["", "0;15", "15;0"])
def test_code_is_readable_on_any_background(colours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code uses only the terminal's own colours, so that it is readable on light backgrounds."""
    monkeypatch.setenv("COLORFGBG", colours)
    console = Console(force_terminal=True, color_system="truecolor", file=io.StringIO())
    with console.capture() as shown:
        print_results(console, [found("def herons(): return 'March'")], "herons")
    assert "38;2;" not in shown.get()
    assert "97m" not in shown.get()


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_word_of_a_table_is_cut_off(width: int) -> None:
    """A table prints a row as a paragraph if its columns don't fit."""
    row = {"worker": "host-17:27247", "version": "0.1.0", "silent_s": 16.1, "taken_over": 12_345}
    row |= {"roles": "indexer, embedder", "retried": 0, "leases_lost": 0, "memory": 329}
    console = Console(width=width, file=io.StringIO())
    with console.capture() as shown:
        console.print(table([row, row]))
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown.get()
    for column, value in row.items():
        words = f"{column.replace('_', ' ')} {value}".replace(",", "").split()
        assert set(words) <= set(shown.get().replace(",", "").split())


def test_a_project_of_one_document_has_no_plural(capsys: pytest.CaptureFixture[str]) -> None:
    doctor._print_health(Health("docs", 1, 1, "", (), ()))
    assert capsys.readouterr().out == "docs: generation 1, 1 document: nothing to repair\n"


def test_status_names_each_stream_in_full() -> None:
    """The name of a stream is printed in full on 80 columns."""
    backlog = Backlog(Topic.CHANGED_BULK, 0, 0, 0, 0, None, 0)
    console = Console(width=80, file=io.StringIO())
    with console.capture() as shown:
        console.print(table([stream_row(backlog)]))
    assert "document.changed.bulk" in shown.get()


def test_a_position_in_json_is_exact_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """Positions are strings in JSON, because JavaScript and jq round large integers."""
    position = 3_700_000_000_000_995_649
    print_json({"position": position, "rows": [{"count": 3, "newest": position}], "ok": True})
    assert json.loads(capsys.readouterr().out) == {
        "position": str(position),
        "rows": [{"count": 3, "newest": str(position)}],
        "ok": True,
    }


def test_lines_of_a_windows_file_end_where_they_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Carriage returns of older chunks are not printed as replacement characters."""
    print_results(Console(), [found("one\r\ntwo\r")], "two")
    shown = capsys.readouterr().out
    assert "two" in shown
    assert "\N{REPLACEMENT CHARACTER}" not in shown


def test_a_table_in_a_pipe_has_one_line_for_each_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other programs read whole values there, unless ``COLUMNS`` is set."""
    rows = [{"uri": f"{number}.md", "position": str(number) * 120} for number in range(2)]
    monkeypatch.delenv("COLUMNS", raising=False)
    stdout().print(table(rows))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:]] == [[*row.values()] for row in rows]
    monkeypatch.setenv("COLUMNS", "60")
    stdout().print(table(rows))
    assert "uri 0.md" in capsys.readouterr().out
