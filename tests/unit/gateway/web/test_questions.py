"""Results of an answer, as the screen to ask shows them."""

from __future__ import annotations

import pytest

from events.models import Citation, Kind, QueryAnswer, Scores, SearchResult
from gateway.web.questions import results_of

TABLE = "| March | 4 |\n| May | 6 |"


def answer_of(content: str, rendered: str | None) -> QueryAnswer:
    result = SearchResult(
        chunk_id=1,
        content=content,
        rendered=rendered,
        kind=Kind.MARKDOWN,
        citation=Citation(uri="herons.md", start_line=7, end_line=8),
        scores=Scores(fused=1.0),
        match_type="keyword",
    )
    return QueryAnswer(query_id="q", project="p", results=(result,), watermark={})


@pytest.mark.parametrize(
    ("content", "rendered", "above", "below"),
    [
        (TABLE, f"| month | nests |\n|---|---|\n{TABLE}", ["| month | nests |", "|---|---|"], []),
        ("nests = 4", "```py\nnests = 4\n```", ["```py"], ["```"]),
        ("nests", "<b>\u202e\nnests", ["&lt;b&gt;\ufffd"], []),
        (TABLE, None, [], []),
    ],
)
def test_a_part_is_shown_between_the_lines_that_make_it_readable(
    content: str, rendered: str | None, above: list[str], below: list[str]
) -> None:
    """The head of a table and the ends of a fence stand around the numbered lines, escaped."""
    [result] = results_of(answer_of(content, rendered), "nests")
    assert [*result.above] == above
    assert [*result.below] == below
    assert [line.number for line in result.lines] == list(range(7, 8 + content.count("\n")))


def test_the_lines_with_most_marks_are_shown() -> None:
    """They have their numbers, and the rest of the chunk is counted."""
    content = "\n".join("the weir" if number in (30, 32) else "none" for number in range(50))
    [result] = results_of(answer_of(content, None), "weir")
    numbers = [line.number for line in result.lines]
    assert {37, 39} <= {*numbers}
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert result.hidden_lines == 50 - len(numbers)
    assert sum("<mark>weir</mark>" in line.html for line in result.lines) == 2
