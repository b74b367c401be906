"""Results of an answer, as the screen to ask shows them."""

from __future__ import annotations

from typing import get_args

import pytest

from events.client.questions import QueryRefused
from events.models import Citation, Kind, OtherMatch, Problem, QueryAnswer, Scores, SearchResult
from gateway.web.questions import results_of
from gateway.web.visits import status_of

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


@pytest.mark.parametrize("found", get_args(SearchResult.model_fields["match_type"].annotation))
def test_every_way_to_find_a_result_has_a_name(found: str) -> None:
    """The results of an exact search had none, and the page failed."""
    answer = answer_of("Herons nest.", None)
    results = (answer.results[0].model_copy(update={"match_type": found}),)
    [shown] = results_of(answer.model_copy(update={"results": results}), "herons")
    assert shown.match


def test_a_refused_question_has_the_status_of_its_error() -> None:
    problem = Problem(type="UnknownProject", detail="there is no project", retryable=False)
    assert status_of(QueryRefused(problem)) == 404


def test_each_section_has_numbers_of_its_own() -> None:
    """The page shows results of one section below each other."""
    answer = answer_of("Herons nest.", None)
    results = tuple(
        answer.results[0].model_copy(update={"section": section})
        for section in ("documents", "documents", "code")
    )
    shown = results_of(answer.model_copy(update={"results": results}), "herons")
    numbered = [(result.section, result.number) for result in shown]
    assert numbered == [("documents", 1), ("documents", 2), ("code", 1)]


def test_the_lines_with_most_marks_are_shown() -> None:
    """They have their numbers, and the rest of the chunk is counted."""
    content = "\n".join("the weir" if number in (30, 32) else "none" for number in range(50))
    [result] = results_of(answer_of(content, None), "weir")
    numbers = [line.number for line in result.lines]
    assert {37, 39} <= {*numbers}
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert result.hidden_lines == 50 - len(numbers)
    assert sum("<mark>weir</mark>" in line.html for line in result.lines) == 2


def test_the_definition_and_the_other_matches_are_shown() -> None:
    """A window below the signature is preceded by it; each other match is a link to its lines."""
    body = "\n".join(["def nest(month):", *["    swans += 1"] * 30, "    herons += 1"])
    answer = answer_of(body, None)
    match = OtherMatch(chunk_id=2, start_line=40, end_line=52, symbol="Heron.fly", score=0.1)
    update = {
        "kind": Kind.CODE,
        "citation": Citation(uri="herons.py", start_line=7, end_line=38, symbol="nest"),
        "other_matches": (match,),
    }
    results = tuple(result.model_copy(update=update) for result in answer.results)
    [result] = results_of(answer.model_copy(update={"results": results}), "herons")
    assert [line.number for line in result.definition] == [7]
    assert [(match.place, match.name) for match in result.other_matches] == [("40-52", "Heron.fly")]
    assert result.other_matches[0].href.endswith("uri=herons.py&lines=40-52#L40")
    [whole] = results_of(answer.model_copy(update={"results": results}), "month")
    assert whole.definition == []
