"""Passages of answers over a real index: whole units, definitions, groups, contexts, diversity."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from events.client.client import Client
from events.client.questions import QueryRefused
from events.models import Filters, SearchResult
from processors.answering import candidates
from processors.answering.units import JOINED_CHUNKS
from tests.support.databases import Database
from tests.support.running import headrace

_BODY = "\n".join(
    f"        total = total + weir_{number} * gauge_{number}  # level {number}"
    for number in range(60)
)
MODULE = f'''"""Rivers."""

import os


class River(Stream):
    """Water that flows."""

    def __init__(self, name):
        self.name = name
        self.source = os.environ["SOURCE"]

    def flow(
        self,
        level,
    ):
        """Measure the flow."""
        total = level
{_BODY}
        return total

    def drain(self):
        """Empty the sluice."""
        self.sluice = None
'''
GATE = 'def open_gate(lock):\n    """Open the gate of a lock."""\n    return lock.gate.lift()\n'
LOCKS = """import os


class Upper:
    def fill_lock(self):
        return os


class Lower:
    def fill_lock(self):
        return None


fill_lock = Upper().fill_lock()
"""
NOTES = [f"Note {number}. The sluice of mill {number} is open." for number in range(3)]


async def test_answers_have_whole_units(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One server shows each kind of passage; every mode and group is asked of the same index."""
    async with headrace(redis_url, database) as worker:
        await worker.change("src/river.py", MODULE, kind="code")
        for number, note in enumerate(NOTES):
            await worker.change(f"note{number}.md", note)
        await _check_units(worker.client)
        await _check_groups(worker.client)
        await _check_contexts(worker.client)
        await _check_diversity(worker.client)
        await worker.change("src/gate.py", GATE, kind="code")
        await worker.change("tests/gate.py", GATE.replace("open_gate", "check"), kind="code")
        await _check_adjustments(worker.client)
        await _check_sections(worker.client)
        await worker.change("src/locks.py", LOCKS, kind="code")
        await _check_definitions(worker.client)
        mills = {f"mill{number}.md": f"Mill {number} has a sluice." for number in range(40)}
        await worker.changes(mills)
        await _check_candidates(worker.client, monkeypatch)


async def _check_units(client: Client) -> None:
    for mode in ("hybrid", "keyword", "vector"):
        answer = await client.ask("docs", "weir_50 gauge_52 weir_58", mode=mode)
        of_function = [result for result in answer.results if "flow" in _names(result)]
        assert len(of_function) == 1, mode
        assert answer.degraded == ()
    [result] = of_function
    answer = await client.ask("docs", "weir_50 gauge_52 weir_58", mode="keyword", explain=True)
    result = answer.results[0]
    assert result.chunk_ids is not None
    assert result.chunk_id in result.chunk_ids
    lines = MODULE.split("\n")
    first, last = result.citation.start_line, result.citation.end_line
    assert result.content.split("\n") == lines[first - 1 : last]
    assert [(part.start_line, part.text) for part in result.definition or ()] == [
        (6, "class River(Stream):"),
        (13, "\n".join(lines[12:16])),
    ]
    [other] = result.other_matches or ()
    assert (other.symbol, other.start_line) == ("River.flow", 13)
    assert other.end_line < first
    spans = {match.term: match.spans for match in result.matches or ()}
    [span] = spans["=weir_58"]
    assert result.content[span.start : span.end] == "weir_58"


async def _check_candidates(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single retriever gives the same results, however many chunks it is asked for at first."""
    for mode in ("keyword", "vector"):
        for limit in (1, 10, 24):
            answers = []
            for count in (100, 24, JOINED_CHUNKS):
                monkeypatch.setattr(candidates, "FIRST_CANDIDATES", count)
                monkeypatch.setattr(candidates, "CANDIDATES_PER_RESULT", 1)
                question = "the weir_50 and gauge_52 of the sluice of a mill"
                answers.append(await client.ask("docs", question, mode=mode, limit=limit))
            assert len(answers[0].results) == limit
            assert all(answer.results == answers[0].results for answer in answers), (mode, limit)
    monkeypatch.undo()


async def _check_groups(client: Client) -> None:
    question = "sluice weir_58 weir_3"
    chunks = await client.ask("docs", question, limit=100)
    assert len({result.citation.uri for result in chunks.results}) < len(chunks.results)
    assert all(result.document_score is None for result in chunks.results)
    documents = await client.ask("docs", question, limit=3, group="document")
    uris = [result.citation.uri for result in documents.results]
    assert len(set(uris)) == len(uris) == 3
    [river] = [result for result in documents.results if result.citation.uri == "src/river.py"]
    assert river.document_score == river.scores.fused
    assert len({match.start_line for match in river.other_matches or ()}) > 1


async def _check_contexts(client: Client) -> None:
    question = "weir_50 weir_3 sluice"
    for tokenizer in (None, "gpt-4o", "claude-2"):
        answer = await client.ask(
            "docs", question, group="document", context_tokens=3_000, context_tokenizer=tokenizer
        )
        assert answer.context is not None
        blocks = [block for block in answer.context.split("\n[") if "src/river.py" in block]
        assert len(blocks) == 1, "neighbours are joined under one citation"
        lines = [line for line in blocks[0].split("\n") if "weir_" in line]
        assert lines == sorted(lines, key=lambda line: int(line.split("level ")[1]))
    with pytest.raises(QueryRefused, match="o200k_base") as refusal:
        await client.ask("docs", question, context_tokens=100, context_tokenizer="none-such")
    assert refusal.value.problem.type == "UsageError"


async def _check_diversity(client: Client) -> None:
    plain = await client.ask("docs", "sluice mill open", limit=100)
    diverse = await client.ask("docs", "sluice mill open", limit=100, diversity=0.9)
    assert diverse.results[0].chunk_id == plain.results[0].chunk_id
    assert [result.citation.uri for result in diverse.results] != [
        result.citation.uri for result in plain.results
    ]


async def _check_sections(client: Client) -> None:
    """Code and other documents have places of their own, and the ranking is the usual one."""
    question = "open the sluice gate"
    shapes: list[dict[str, Any]] = [
        {},
        {"mode": "keyword"},
        {"mode": "vector"},
        {"diversity": 0.5},
    ]
    for options in shapes:
        for group in ("chunk", "document"):
            query = {**options, "group": group, "limit": 2}
            divided = (await client.ask("docs", question, sections=True, **query)).results
            assert [result.section for result in divided] in (
                ["code", "code", "documents", "documents"],
                ["documents", "documents", "code", "code"],
            )
            assert all((result.kind == "code") == (result.section == "code") for result in divided)
            plain = await client.ask("docs", question, **{**query, "limit": 100})
            assert divided[0].chunk_id == plain.results[0].chunk_id
            assert {result.section for result in plain.results} == {None}
            if not query.get("diversity"):
                order = [result.chunk_id for result in plain.results]
                ranks = [order.index(result.chunk_id) for result in divided]
                assert [*sorted(ranks[:2]), *sorted(ranks[2:])] == ranks
    answer = await client.ask("docs", question, sections=True, limit=2, context_tokens=3_000)
    labels = re.findall(r"^\[(.*?)\]", answer.context or "", re.MULTILINE)
    assert {"code 1", "code 2", "documents 1", "documents 2"} >= set(labels) > {"code 1"}
    named = await client.ask("docs", "open_gate", sections=True, explain=True)
    assert (named.results[0].section, named.results[0].citation.uri) == ("code", "src/gate.py")
    assert "defines open_gate" in (named.results[0].explanation or "")
    filters = Filters.model_validate({"kinds": ["code"]})
    for filtered in (
        await client.ask("docs", question, sections=True, filters=filters),
        await client.ask("docs", f"{question} kind:code", sections=True, operators=True),
    ):
        assert {result.section for result in filtered.results} == {None}


async def test_a_section_without_candidates_is_searched_by_itself(
    redis_url: str, database: Database
) -> None:
    """Code is found beside more documents than the retrievers return; a few chunks are not."""
    pages = "\n".join(
        f"# Heron {number}\n\n" + "The heron stands in the reeds. " * 40 for number in range(130)
    )
    functions = "\n".join(
        f"def weir_{number}(gauge):\n"
        + "".join(f"    gauge.level_{line} = total_{number} + {line}\n" for line in range(14))
        for number in range(130)
    )
    async with headrace(redis_url, database) as worker:
        await worker.change("herons.md", pages)
        await worker.change("small.py", "def reed():\n    return 1\n", kind="code")
        few = await worker.client.ask("docs", "where does the heron stand", sections=True)
        assert {result.section for result in few.results} == {"documents"}
        await worker.change("weirs.py", functions, kind="code")
        answer = await worker.client.ask("docs", "where does the heron stand", sections=True)
        counts = Counter(result.section for result in answer.results)
        assert counts == {"documents": 10, "code": 10}
        assert answer.results[0].section == "documents"
        filters = Filters.model_validate({"kinds": ["code"]})
        alone = await worker.client.ask("docs", "where does the heron stand", filters=filters)
        of_code = [result.chunk_id for result in answer.results if result.section == "code"]
        assert of_code == [result.chunk_id for result in alone.results]


async def _check_definitions(client: Client) -> None:
    """A question of symbols alone lists definitions, without the rest of their chunks."""

    async def lines(text: str, **options: Any) -> list[tuple[str, int, int]]:
        answer = await client.ask("docs", text, operators=True, **options)
        places = (result.citation for result in answer.results)
        return [(place.uri, place.start_line, place.end_line) for place in places]

    upper, lower = ("src/locks.py", 5, 6), ("src/locks.py", 10, 11)
    assert await lines("symbol:fill_lock") == [upper, lower]
    assert await lines("symbol:fill_lock", limit=1) == [upper]
    assert await lines("symbol:Lower.fill_lock") == [lower]
    assert await lines("symbol:Fill_Lock") == await lines("symbol:fill_lock kind:markdown") == []
    assert await lines("symbol:open_gate symbol:Lower") == [
        ("src/gate.py", 1, 3),
        ("src/locks.py", 9, 11),
    ]
    [(uri, first, last)] = await lines("symbol:River.flow")
    assert (uri, MODULE.split("\n")[first - 1]) == ("src/river.py", "    def flow(")
    assert last > first
    options: dict[str, Any] = {"group": "document", "context_tokens": 200}
    answer = await client.ask("docs", "symbol:fill_lock", operators=True, **options)
    [result] = answer.results
    assert result.content == "    def fill_lock(self):\n        return os"
    assert [match.place for match in result.other_matches or ()] == ["10-11"]
    assert "def fill_lock" in (answer.context or "")
    [match] = result.matches or ()
    [span] = match.spans
    assert result.content[span.start : span.end] == match.term == "fill_lock"
    assert answer.exact is not None
    assert (answer.exact.matches, answer.exact.files, answer.exact.truncated) == (2, 1, False)


def _names(result: SearchResult) -> str:
    return result.citation.symbol or ""


async def _check_adjustments(client: Client) -> None:
    """Hybrid scores depend on the name of a unit and on the path of a test; others do not."""
    question = "how do I open the gate of a lock"
    answer = await client.ask("docs", question, explain=True)
    reasons = {result.citation.uri: result.explanation or "" for result in answer.results}
    assert "name +0.100" in reasons["src/gate.py"]
    assert "test or example -0.100" in reasons["tests/gate.py"]
    plain = await client.ask("docs", question, mode="keyword", explain=True)
    assert not any("name" in (result.explanation or "") for result in plain.results)
