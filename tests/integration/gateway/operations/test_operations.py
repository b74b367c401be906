"""Operations of the gateway on a real deployment: replays in child processes, letters, history."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis

from events import replays
from events.names import Names
from events.replays import ReplayState, ReplayStates
from gateway.operations import Operations
from gateway.operations import replays as children
from gateway.operations.operations import ReplayPlan
from runtime.errors import Conflict, NotFound, UnknownProject, UsageError
from runtime.settings import Settings
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.dead_letters import Defect
from tests.support.replays import HASHING, age_switch, notes
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually

NAMES = Names()
ROOT = Path(__file__).parents[4]


@pytest.fixture
async def worker(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    """Worker that has indexed the notes in the project ``docs``."""
    async with headrace(redis_url, database, model=HASHING) as running:
        await notes(running)
        yield running


def settings_of(redis_url: str, database: Database, home: Path) -> Settings:
    """Settings of an operator of the test's servers."""
    return Settings(
        redis_url=redis_url,
        database_url=database.operator_url,
        owner_database_url=database.owner_url,
        model=HASHING,
        home=home,
    )


@pytest.fixture
async def operations(
    worker: Headrace, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Operations]:
    """Operations on the deployment of the worker."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    async with Operations.open(settings_of(worker.redis_url, database, tmp_path), NAMES) as opened:
        yield opened


async def ended(operations: Operations, replay_id: str) -> ReplayState:
    """Wait until a replay has ended, and return its state."""
    states: list[ReplayState] = []

    async def has_ended() -> bool:
        states.append(await operations.replay(replay_id))
        return states[-1].has_ended

    await eventually(has_ended, "the replay has ended", timeout=30)
    return states[-1]


async def test_a_replay_is_followed_rolled_back_and_dropped(
    operations: Operations, worker: Headrace, database: Database, tmp_path: Path
) -> None:
    """Each step is a child process, whose state any process can read."""
    [old] = await operations.generations("docs")
    plan = await operations.start_replay("docs", chunking="1:96", dry_run=True)
    assert isinstance(plan, ReplayPlan)
    assert plan.documents == 12
    assert len(await operations.generations("docs")) == 1

    started = await operations.start_replay("docs", chunking="1:96")
    assert isinstance(started, ReplayState)
    with pytest.raises(Conflict, match="docs is being replayed"):
        await operations.start_replay("docs")
    replayed = await ended(operations, started.id)
    assert (replayed.state, replayed.options) == ("succeeded", {"chunking": "1:96"})
    assert replayed.result is not None
    assert replayed.result["switched"]
    assert replayed.done == replayed.total
    former, new = await operations.generations("docs")
    assert (former.id, former.state, new.state) == (old.id, "former", "live")
    assert former.droppable_at is not None

    cli = Cli(environment_of(worker.redis_url, database, tmp_path))
    shown = (await cli("replay", "status", started.id, "--json")).json
    assert (shown["state"], shown["result"]["generation"]) == ("succeeded", new.id)

    with pytest.raises(Conflict, match="is live"):
        await operations.switch("docs", new.id)
    with pytest.raises(Conflict, match="queries may still read it"):
        await operations.drop_generation("docs", old.id)
    rolled_back = await operations.rollback("docs")
    assert rolled_back.result is not None
    assert rolled_back.result["generation"] == old.id
    switched = await operations.switch("docs", new.id)
    assert switched.state == "succeeded"
    await age_switch(database, new.id)
    dropped = await operations.drop_generation("docs", old.id)
    assert dropped.state == "succeeded"
    assert [row.id for row in await operations.generations("docs")] == [new.id]


class SlowChild:
    """A child process that does not get to its first report."""

    def __init__(self, *_: object, **__: object) -> None:
        self.is_running = True

    def start(self) -> None:
        """Start it."""

    async def stop(self, _timeout: timedelta) -> None:
        """End it."""
        self.is_running = False

    def ending(self) -> str:
        """Describe its end."""
        return "it was stopped"


async def test_a_child_that_starts_slowly_is_not_lost(
    operations: Operations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine, it may take longer to its first report than between two reports."""
    monkeypatch.setattr(replays, "SILENT_AFTER", timedelta())
    monkeypatch.setattr(children, "ChildProcess", SlowChild)
    started = await operations.start_replay("docs", chunking="1:96")
    assert isinstance(started, ReplayState)
    assert (await operations.replay(started.id)).state == "running"
    assert [state.state for state in await operations.replays()] == ["running"]


@asynccontextmanager
async def no_writes(database: Database) -> AsyncIterator[None]:
    """Let all that writes documents wait for the length of the block."""
    owner = await asyncpg.connect(database.owner_url)
    try:
        async with owner.transaction():
            await owner.execute("LOCK TABLE documents IN SHARE MODE")
            yield
    finally:
        await owner.close()


async def test_a_killed_replay_changes_nothing_and_is_resumed(
    operations: Operations, worker: Headrace, database: Database
) -> None:
    """The state says how to continue, and the next replay does."""
    [live] = await operations.generations("docs")
    async with no_writes(database):  # it might end before it is killed
        started = await operations.start_replay("docs", chunking="1:96")
        assert isinstance(started, ReplayState)

        async def has_reported() -> bool:
            return (await operations.replay(started.id)).pid != 0

        await eventually(has_reported, "the child has reported")
        os.kill((await operations.replay(started.id)).pid, signal.SIGKILL)
        lost = await ended(operations, started.id)
    assert lost.state == "lost"
    assert lost.error is not None
    assert "SIGKILL" in lost.error.message
    assert "run it again" in lost.error.remedy
    [still] = [row for row in await operations.generations("docs") if row.state == "live"]
    assert still.id == live.id

    async def resumed() -> ReplayState | None:
        try:
            again = await operations.start_replay("docs", chunking="1:96")
        except Conflict:  # Postgres has not noticed the end of the child yet
            return None
        assert isinstance(again, ReplayState)
        return again

    again = await eventually(resumed, "the project can be replayed again")
    assert again is not None
    assert (await ended(operations, again.id)).state == "succeeded"
    assert (await worker.client.ask("docs", "word7")).results


async def test_a_replay_is_stopped_from_another_process(
    operations: Operations, worker: Headrace, database: Database, tmp_path: Path
) -> None:
    """A gateway that did not start the replay stops it by a request in Redis."""
    started = await operations.start_replay("docs", chunking="1:96")
    assert isinstance(started, ReplayState)
    cli = Cli(environment_of(worker.redis_url, database, tmp_path))
    assert "stops within a few seconds" in (await cli("replay", "stop", started.id)).stdout
    stopped = await ended(operations, started.id)
    assert stopped.state in ("stopped", "succeeded")  # a stop is too late once it switches
    assert stopped.result is None or stopped.result["switched"] == (stopped.state == "succeeded")
    assert (await operations.stop_replay(started.id)).state == stopped.state


async def test_the_end_of_the_gateway_stops_its_replays(
    worker: Headrace, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway that ends leaves no child behind, and the replay can be resumed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    async with Operations.open(settings_of(worker.redis_url, database, tmp_path), NAMES) as opened:
        started = await opened.start_replay("docs", chunking="1:96")
        assert isinstance(started, ReplayState)
    async with Redis.from_url(worker.redis_url) as redis:
        state = await ReplayStates(redis, NAMES).find(started.id)
    assert state.has_ended


async def test_impossible_operations_are_refused(operations: Operations) -> None:
    """Errors of requests and of children arrive as errors of Headrace."""
    with pytest.raises(UnknownProject):
        await operations.start_replay("nothing")
    with pytest.raises(NotFound, match="no quality gate"):
        await operations.start_replay("docs", gate="../secrets")
    with pytest.raises(NotFound, match="there is no generation 999"):
        await operations.switch("docs", 999)
    with pytest.raises(Conflict, match="no former generation") as refused:
        await operations.rollback("docs")
    assert "headrace replay" in refused.value.remedy
    with pytest.raises(NotFound, match="does not exist"):
        await operations.replay("nothing")
    with pytest.raises(UsageError, match="no chunking '99'"):
        await operations.start_replay("docs", chunking="99", dry_run=True)


async def test_letters_are_redriven_by_their_count(
    operations: Operations, worker: Headrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redriven change is followed by its token, and is searchable after the repair."""
    defect = Defect(monkeypatch, "poison.md")
    await worker.change("poison.md", "# Poison\n\nThe heron nests.\n")

    async def is_stored() -> bool:
        return bool(await operations.dead_letters())

    await eventually(is_stored, "the letter is stored after its outcome")
    [row] = await operations.dead_letter_counts()
    assert (row.project, row.count) == ("docs", 1)
    [letter] = await operations.dead_letters(project="docs", error=row.error)
    assert letter.event["data"]["uri"] == letter.uri == "poison.md"
    assert await operations.dead_letter(letter.id) == letter
    with pytest.raises(UsageError, match="needs `count`"):
        await operations.redrive(filter={"project": "docs"})
    with pytest.raises(Conflict, match="matches 1 dead letters, not 2"):
        await operations.redrive(filter={"project": "docs"}, count=2)
    defect.repair()
    [outcome] = await operations.redrive(filter={"project": "docs"}, count=1)
    assert outcome.token == letter.token
    assert await operations.dead_letters() == []

    async def is_searchable() -> bool:
        answer = await worker.client.ask("docs", "heron", mode="keyword")
        return any(result.citation.uri == "poison.md" for result in answer.results)

    await eventually(is_searchable, "the redriven change is searchable")


async def test_the_history_has_changes_of_the_ledger(operations: Operations) -> None:
    """Every change that was handled is in a minute, with its freshness."""
    points = await operations.history(minutes=10)
    assert len(points) == 10
    handled = [point for point in points if point.changes_per_s]
    assert handled
    for point in handled:
        assert point.freshness_p50_ms is not None
        assert point.freshness_p99_ms is not None
        assert 0 < point.freshness_p50_ms <= point.freshness_p99_ms

    async def is_sampled() -> bool:
        return (await operations.history(minutes=2))[-1].redis_memory_bytes is not None

    await eventually(is_sampled, "a sample was taken")


async def test_the_status_is_that_of_the_command(
    operations: Operations, worker: Headrace, database: Database, tmp_path: Path
) -> None:
    """Routes and command show the same fields and projects."""
    cli = Cli(environment_of(worker.redis_url, database, tmp_path))
    printed: dict[str, Any] = (await cli("status", "--json")).json
    status = await operations.status()
    assert status.keys() == printed.keys()
    assert status["projects"] == printed["projects"]


async def test_evaluations_are_saved_and_compared(
    operations: Operations, worker: Headrace, database: Database, tmp_path: Path
) -> None:
    """Modes are saved with the scores of their questions; names and ids are compared."""
    directory = tmp_path / "set"
    directory.mkdir()
    (directory / "corpus.jsonl").write_text(
        '{"_id": "heron", "text": "Herons nest in March."}\n'
        '{"_id": "oven", "text": "Set the oven to 220 degrees."}\n'
    )
    (directory / "queries.jsonl").write_text('{"_id": "q1", "text": "herons nest"}\n')
    (directory / "qrels.tsv").write_text("query\tdocument\tgrade\nq1\theron\t1\n")
    cli = Cli(environment_of(worker.redis_url, database, tmp_path))
    printed = (await cli("eval", str(directory), "--save", "--mode", "keyword", "--json")).json
    named = await cli("eval", str(directory), "--name", "meaning", "--mode", "vector")
    [project] = {row["project"] for row in (await operations.status())["projects"]} - {"docs"}

    vector, keyword = await operations.evaluations(project)
    assert (keyword.mode, keyword.set_name, keyword.questions) == ("keyword", "set", 1)
    assert keyword.scores["ndcg@10"] == printed["keyword"]["ndcg@10"] == 1.0
    assert keyword.generation == (await operations.generations(project))[0].id
    saved = await operations.evaluation(keyword.id)
    [question] = saved.questions
    assert (question.id, question.text, question.ndcg) == ("q1", "herons nest", 1.0)
    assert question.uris[0] == "heron"
    assert vector.mode == "vector"
    assert await operations.evaluations("docs") == []
    with pytest.raises(NotFound, match="there is no evaluation"):
        await operations.evaluation("999")

    assert f"saved as evaluation {vector.id} (vector)" in named.stderr
    listed = (await cli("eval", "list", "--json")).stdout.splitlines()
    assert [itemgetter("id", "name", "mode")(json.loads(line)) for line in listed] == [
        (vector.id, "meaning", "vector"),
        (keyword.id, None, "keyword"),
    ]
    plot = tmp_path / "plot.svg"
    options = ("--json", "--plot", str(plot))
    compared = (await cli("eval", "compare", keyword.id, "meaning", *options)).json
    [row] = compared["comparisons"]
    assert row["mode"] == {"before": "keyword", "after": "vector"}
    assert row["ndcg@10"]["before"] == 1.0
    assert row["ndcg@10"]["after"] == round(vector.scores["ndcg@10"], 4)
    assert row["won"] + row["lost"] + row["tied"] == 1
    assert plot.read_text().startswith("<svg")
    printed = (await cli("eval", "compare", keyword.id, "meaning")).stdout
    assert "keyword →" in printed
    assert printed.splitlines()[0].startswith("set")
    missing = await cli("eval", "compare", keyword.id, "absent")
    assert "there is no evaluation 'absent'; `headrace eval list` lists them" in missing.line
    for unusable in ("12", " "):
        refused = await cli("eval", str(directory), "--name", unusable)
        assert "can't be the name of an evaluation" in refused.line
