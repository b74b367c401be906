"""Citations and contexts of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from events.models import Query
from processors.answering.fusion import Fused, RankedScore
from processors.answering.results import Assembler, permalink
from processors.answering.units import Passage
from store.generations.catalog import Generation, Recipe
from store.search.exact import ExactMatches
from store.search.exact import Passage as LinesPassage
from store.search.lines import Line, Place
from store.search.search import Neighbours, Search
from store.types import ChunkPart, ChunkRow

ROW = ChunkRow(
    chunk_id=1,
    document_id=1,
    uri="src/odd name#1.py",
    kind="code",
    title=None,
    content="def flow(): ...",
    start_line=3,
    end_line=9,
    page=None,
    locator=None,
    symbol="flow",
    heading_path=(),
    commit="abc123",
    permalink_template="https://git.example/x/blob/{commit}/{path}#L{start}-L{end}",
    metadata={},
    tokens=5,
)
GENERATION = Generation(1, 1, "live", Recipe("m"), datetime.now(UTC))


class Rows(Search):
    """Search that has some chunks by id."""

    def __init__(self, rows: Sequence[ChunkRow]) -> None:
        self._rows = {row.chunk_id: row for row in rows}

    async def rows_and_parts(
        self,
        generation: Generation,
        agent: str | None,
        chunk_ids: Sequence[int],
        needed: Callable[[Mapping[int, ChunkRow]], Neighbours],
    ) -> tuple[dict[int, ChunkRow], list[ChunkPart]]:
        rows = {chunk_id: self._rows[chunk_id] for chunk_id in chunk_ids if chunk_id in self._rows}
        assert needed(rows) == ([], [])
        return rows, []


def _words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def _ranked(*chunk_ids: int) -> list[Passage]:
    return [
        Passage(Fused(one, 1 / place, "vector", RankedScore(place, 0.5), None), place)
        for place, one in enumerate(chunk_ids, 1)
    ]


def _query(**fields: object) -> Query:
    return Query.model_validate({"project": "p", "text": "flow", "reply_to": "r"} | fields)


def test_a_permalink_holds_commit_path_and_lines() -> None:
    """Special characters are escaped in a permalink; slashes of the path stay."""
    link = "https://git.example/x/blob/abc123/src/odd%20name%231.py#L3-L9"
    assert permalink(ROW) == link


def test_without_a_commit_the_permalink_names_head() -> None:
    """A permalink without a commit refers to HEAD."""
    link = permalink(replace(ROW, commit=None))
    assert link is not None
    assert "/blob/HEAD/" in link


def test_without_a_template_there_is_no_permalink() -> None:
    """A document without a template has no permalink."""
    assert permalink(replace(ROW, permalink_template=None)) is None


def test_the_address_of_a_message_is_the_permalink_without_a_template() -> None:
    """A message of a chat has an address of its own; the publisher's template goes before it."""
    locator = {"fragment": "turns=1", "permalink": "https://acme.slack.com/archives/C1/p1"}
    row = replace(ROW, locator=locator, permalink_template=None)
    assert permalink(row) == "https://acme.slack.com/archives/C1/p1"
    assert permalink(replace(ROW, locator=locator)) == permalink(ROW)


async def test_chunks_that_went_meanwhile_are_left_out() -> None:
    """A chunk that was deleted after the search is left out."""
    answer = await Assembler(Rows([ROW]), _words).assemble(_query(), _ranked(7, 1), GENERATION)
    assert [one.chunk_id for one in answer.results] == [1]
    assert not answer.is_complete


@pytest.mark.parametrize(("budget", "kept"), [(1000, [1, 2, 3]), (36, [1, 3])])
async def test_a_context_takes_whole_chunks_within_its_budget(budget: int, kept: list[int]) -> None:
    """A context skips a chunk that does not fit and takes later ones that do; it cuts none."""
    rows = [
        replace(ROW, chunk_id=number, content=" ".join([f"w{number}"] * length))
        for number, length in ((1, 20), (2, 30), (3, 5))
    ]
    query = _query(context_tokens=budget)
    assembled = await Assembler(Rows(rows), _words).assemble(query, _ranked(1, 2, 3), GENERATION)
    context = assembled.context
    assert context is not None
    assert [number for number in (1, 2, 3) if f"w{number}" in context] == kept
    assert _words([context])[0] <= budget


async def test_an_explanation_names_both_legs() -> None:
    """An explanation gives the rank in each retriever, or that it did not find the chunk."""
    assembled = await Assembler(Rows([ROW]), _words).assemble(
        _query(explain=True),
        [Passage(_ranked(1)[0].best._replace(adjusted=("name +0.040",)))],
        GENERATION,
    )
    results = assembled.results
    assert results[0].explanation is not None
    assert "rank 1" in results[0].explanation
    assert "not among the candidates; name +0.040; together 1.000" in results[0].explanation


@pytest.mark.parametrize(("left_out", "unmarked"), [(0, None), (3, 6)])
async def test_matches_without_a_span_are_counted(left_out: int, unmarked: int | None) -> None:
    lines = [Line(number, "flow", ((0, 4),), left_out) for number in (3, 4)]
    passage = LinesPassage(1, Place(ROW.uri, "", 4), 1, tuple(lines))
    matches = ExactMatches([passage], rows={1: ROW})
    [result], _ = await Assembler(Rows([ROW]), _words).assemble_lines(_query(), matches)
    [match] = result.matches or ()
    spans = [(span.start, span.end) for span in match.spans]
    assert (result.content, spans, match.unmarked) == ("flow\nflow", [(0, 4), (5, 9)], unmarked)


async def test_a_part_of_a_fence_is_rendered() -> None:
    """The content stays the source's own; the rendered form and the context are complete."""
    part = replace(ROW, content="a = 1", locator={"opening": "```py", "closing": "```"})
    assembler = Assembler(Rows([part, replace(ROW, chunk_id=2)]), _words)
    assembled = await assembler.assemble(_query(context_tokens=100), _ranked(1, 2), GENERATION)
    results, context = assembled.results, assembled.context
    assert [result.content for result in results] == ["a = 1", "def flow(): ..."]
    assert [result.rendered for result in results] == ["```py\na = 1\n```", None]
    assert context is not None
    assert "```py\na = 1\n```\n\n[2]" in context
