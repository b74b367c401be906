"""What reaches a terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from events import Backlog, QueryAnswer
from events.names import Topic
from gateway.answers import print_answer
from gateway.looking import stream_row
from gateway.output import printable
from gateway.tables import table


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "\x1b]0;title\x07", "\r", "\x9b31m", "\x00", "\x0b", "\u202e"]
)
def test_nothing_that_a_terminal_obeys_is_printed(hostile: str) -> None:
    """A document can't clear the screen of who finds it, nor rewrite the line above."""
    shown = printable(f"before{hostile}after")
    assert shown.isprintable()
    assert shown.startswith("before\N{REPLACEMENT CHARACTER}")


def test_text_stays_as_it_is() -> None:
    """Lines, tabs, accents and other scripts are content."""
    text = "a\tb\n    naïve — 水路\u00a0🛶\n"
    assert printable(text) == text


def notes(coverage: float, *degraded: str) -> str:
    """The last lines of an answer without results."""
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
    """A leg that failed is another matter."""
    assert "62% of the chunks searched have vectors" in notes(0.62, "vector")
    assert "degraded" not in notes(0.62, "vector")
    assert "degraded: could not search keyword" in notes(0.62, "vector", "keyword")
    assert "degraded: could not search vector" in notes(1.0, "vector")
    assert "chunks searched" not in notes(1.0)


def test_status_names_each_stream_in_full() -> None:
    """On 80 columns too, live and bulk can be told apart."""
    backlog = Backlog(Topic.CHANGED_BULK, 0, 0, 0, 0, None, 0)
    console = Console(width=80, file=io.StringIO())
    with console.capture() as shown:
        console.print(table([stream_row(backlog)]))
    assert "document.changed.bulk" in shown.get()
