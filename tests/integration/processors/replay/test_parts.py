"""Partial replays, rollbacks, drops, dry runs and quality gates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from processors.replay.generations import (
    drop,
    find_generation,
    generation_before,
    list_generations,
    switch_to,
)
from processors.replay.quality_gate import Ask, EvaluationGate
from processors.replay.replay import Replay
from processors.replay.scope import Choice
from processors.replay.verification import NotSwitched
from processors.wiring.operator_tools import OperatorTools
from runtime.errors import UsageError
from tests.support.databases import Database
from tests.support.model_server import running_server
from tests.support.replays import (
    HASHING,
    Struck,
    age_switch,
    generation_states,
    notes,
    replay,
    rows,
    struck,
    tools,
)
from tests.support.running import Headrace, headrace
from tests.support.waiting import patience

CODE = "def greet(name):\n    return f'hello {name}'\n"
MODELS = """
    select d.uri, m.name from documents d
    join chunks c on c.generation_id = d.generation_id and c.document_id = d.id
    join embeddings e on e.generation_id = d.generation_id and e.chunk_id = c.id
    join models m on m.id = e.model_id
    where d.generation_id = $1
"""


def quiet(_done: int, _total: int = 0) -> None:
    """Progress callback that does nothing."""


@pytest.fixture
async def worker(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    """Worker that has indexed the notes and some code in the project ``docs``."""
    async with headrace(redis_url, database, model=HASHING) as running:
        await notes(running)
        await running.change("greet.py", CODE, collections=("code",))
        yield running


@pytest.fixture
async def opened(worker: Headrace, database: Database) -> AsyncIterator[OperatorTools]:
    """Tools of replays."""
    async with tools(worker.redis_url, database) as opened:
        yield opened


async def test_a_model_for_one_kind_carries_the_others_over(
    worker: Headrace, database: Database
) -> None:
    """Only code is embedded by the new model; other documents keep their vectors."""
    async with running_server() as server:
        at = {"model_base_url": server.base_url, "model_api_key": server.key}
        async with tools(worker.redis_url, database, **at) as opened:
            report = await replay(opened, kind="code", model="openai/test")
    assert (report.switched, report.cost.texts) == (True, 1)
    models = {row["uri"]: row["name"] for row in await rows(database, "docs", MODELS)}
    assert models.pop("greet.py") == "openai/test"
    assert len(models) == 12
    assert set(models.values()) == {HASHING}


async def test_carried_documents_are_found_by_their_words(
    worker: Headrace, opened: OperatorTools
) -> None:
    """Copied documents keep their postings, collections and owner."""
    await replay(opened, collection="code")
    answer = await worker.client.ask("docs", "word7", mode="keyword")
    assert answer.results[0].citation.uri == "notes/7.md"
    secret = await worker.client.ask("docs", "secret", mode="keyword")
    assert not secret.results
    secret = await worker.client.ask("docs", "secret", mode="keyword", agent="ada")
    assert [one.citation.uri for one in secret.results] == ["secret.md"]


async def test_since_an_event_makes_only_later_documents_anew(
    worker: Headrace, opened: OperatorTools
) -> None:
    """A replay since an event stores its scope and verifies all documents."""
    outcome = await worker.change("late.md", "# Late\n\nThe last of all.\n")
    report = await replay(opened, since=outcome.data.event_id)
    assert report.switched
    (live,) = [one for one in await opened.store.generations("docs") if one.state == "live"]
    assert list(live.scope) == ["since"]
    assert report.documents == 14


async def test_a_dry_run_writes_nothing(worker: Headrace, database: Database) -> None:
    """A dry run gives exact texts and tokens, a known price or None, and writes nothing."""
    async with running_server() as server:
        at = {"model_base_url": server.base_url, "model_api_key": server.key}
        async with tools(worker.redis_url, database, **at) as opened:
            for model, cost in (("openai/test", None), ("openai/text-embedding-3-small", 2e-8)):
                plan = await Replay(opened, "docs", Choice(model=model), None, show).plan()
                assert (plan.documents, plan.chunks, plan.embedded) == (13, 13, 13)
                assert plan.tokens > 100
                assert plan.cost_usd == (
                    None if cost is None else pytest.approx(plan.tokens * cost)
                )
                assert plan.seconds > 0
            same = await Replay(opened, "docs", Choice(), None, show).plan()
            assert (same.embedded, same.reused, same.cost_usd) == (0, 13, 0.0)
            assert await generation_states(opened) == ["live"]
        assert {text for request in server.requests for text in request} == {"width"}


def show(_what: str, _done: int, _total: int) -> None:
    """Progress callback that does nothing."""


async def test_rollback_brings_what_changed_since(
    worker: Headrace, opened: OperatorTools, database: Database
) -> None:
    """A rollback takes less than a second and applies the changes since the switch."""
    report = await replay(opened, chunking="1:64")
    await worker.change("notes/0.md", "# Note 0\n\nWritten after the switch.\n")
    await worker.change("notes/4.md", change="delete")
    await worker.change("notes/5.md", "# Five\n", change="rename", old_uri="notes/6.md")
    returned = await switch_to(opened, "docs", await generation_before(opened, "docs"), quiet)
    assert (returned.generation, returned.caught_up) == (report.former, 4)
    assert returned.seconds < patience(1)
    stored = await rows(
        database,
        "docs",
        "select d.uri, c.content from documents d left join chunks c"
        " on c.generation_id = d.generation_id and c.document_id = d.id"
        " where d.generation_id = $1 and d.uri = any ($2::text[]) order by d.uri",
        ["notes/0.md", "notes/4.md", "notes/5.md", "notes/6.md"],
    )
    assert [(row["uri"], (row["content"] or "").strip()) for row in stored] == [
        ("notes/0.md", "# Note 0\n\nWritten after the switch."),
        ("notes/4.md", ""),
        ("notes/5.md", "# Five"),
        ("notes/6.md", ""),
    ]
    again = await generation_before(opened, "docs")
    assert again.id == report.generation


async def test_only_former_generations_can_be_switched_to(opened: OperatorTools) -> None:
    """A generation that is live, half built or unknown can't be switched to."""
    live = await opened.store.generation("docs")
    with pytest.raises(UsageError, match=f"generation {live.id} is live already"):
        await switch_to(opened, "docs", live, quiet)
    with pytest.raises(UsageError, match="docs has no former generation"):
        await generation_before(opened, "docs")
    with pytest.raises(UsageError, match="there is no generation 999"):
        await find_generation(opened, 999)
    with struck("replay.building"), pytest.raises(Struck):
        await replay(opened)
    _, half = await find_generation(opened, live.id + 1)
    with pytest.raises(UsageError, match="is half built"):
        await switch_to(opened, "docs", half, quiet)


async def test_a_drop_leaves_nothing_and_can_be_begun_again(
    worker: Headrace, opened: OperatorTools, database: Database
) -> None:
    """A drop is refused while questions may read the generation, and can be resumed."""
    report = await replay(opened)
    with pytest.raises(UsageError, match=f"generation {report.generation} is live"):
        await drop(opened, report.generation, quiet)
    with pytest.raises(UsageError, match=r"drop it in \d+ s"):
        await drop(opened, report.former, quiet)
    await age_switch(database, report.generation)
    with struck("replay.dropping"), pytest.raises(Struck):
        await drop(opened, report.former, quiet)
    assert await generation_states(opened) == ["dropping", "live"]
    await drop(opened, report.former, quiet)
    assert [one.generation.id for one in await list_generations(opened, "docs")] == [
        report.generation
    ]
    assert (await worker.client.ask("docs", "word7")).results


async def test_a_gate_that_expects_other_documents_is_refused(opened: OperatorTools) -> None:
    """A gate whose documents the live index does not return is refused."""

    async def score(_: Ask) -> float:
        return 0.0

    with pytest.raises(UsageError, match="no baseline: the live index of docs returns none"):
        await replay(opened, gate=EvaluationGate(score, 0.01))
    assert await generation_states(opened) == ["live", "building"]


async def test_the_gate_compares_both_generations(opened: OperatorTools) -> None:
    """A score that falls by more than allowed prevents the switch."""
    scores = iter([0.9, 0.5, 0.9, 0.895])

    async def score(ask: Ask) -> float:
        found: Sequence[str] = await ask("word7 of note 7")
        assert "notes/7.md" in found
        return next(scores)

    with pytest.raises(NotSwitched, match=r"its nDCG@10 is 0\.5000, and that of the live"):
        await replay(opened, gate=EvaluationGate(score, 0.01))
    assert await generation_states(opened) == ["live", "building"]
    report = await replay(opened, gate=EvaluationGate(score, 0.01))
    assert report.gate is not None
    assert (report.resumed, report.gate.new) == (True, 0.895)
