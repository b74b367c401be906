"""What an operator can do with a deployment, and what it survives."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from headrace import Client, DocumentChange, DocumentChanged, DocumentIndexed, DocumentRejected
from tests.support.databases import Database
from tests.support.operations import Operator
from tests.support.running import PATIENCE, Headrace, headrace
from tests.support.waiting import eventually

WEIR = "# Weir\n\nA weir raises the level of the river.\n"
GATE = "# Gate\n\nThe gate of the weir closes at night.\n"


@pytest.fixture
def operator(redis_url: str, database: Database, tmp_path: Path) -> Operator:
    """Commands for the servers of the test."""
    return Operator(redis_url, database, tmp_path / "home")


@pytest.fixture
async def weir(running: Headrace) -> Headrace:
    """A worker that has indexed one document."""
    await running.change("weir.md", WEIR)
    return running


async def cited(running: Headrace, text: str = "weir") -> set[str]:
    """Uris of an answer."""
    answer = await running.client.ask("docs", text)
    return {result.citation.uri for result in answer.results}


async def generation(running: Headrace) -> int:
    """Generation that answers questions."""
    return (await running.client.ask("docs", "weir")).generation


async def test_a_replay_rebuilds_the_index_from_the_log(weir: Headrace, operator: Operator) -> None:
    """The new generation goes live, has the same documents, and needs no new vector."""
    former = await generation(weir)
    report = await operator.read("replay", "--project", "docs")
    assert (report["switched"], report["documents"], report["embedded"]) == (True, 1, 0)
    assert await generation(weir) == report["generation"] != former
    assert await cited(weir) == {"weir.md"}


async def test_a_rollback_returns_to_the_former_index(weir: Headrace, operator: Operator) -> None:
    """The former generation is brought up to date before it answers."""
    former = await generation(weir)
    await operator.run("replay", "--project", "docs")
    await weir.change("gate.md", GATE)
    await operator.run("replay", "rollback", "--project", "docs")
    assert await generation(weir) == former
    assert await cited(weir) == {"weir.md", "gate.md"}


async def test_the_archive_outlives_redis(weir: Headrace, operator: Operator) -> None:
    """After the loss of Redis, a replay folds the archive alone."""
    await weir.change("gate.md", GATE)
    await weir.change("weir.md", change="delete")
    await operator.wait_for_archive()
    await operator.lose_redis()
    assert (await operator.read("replay", "--project", "docs"))["documents"] == 1
    assert await eventually(lambda: cited(weir), "an answer") == {"gate.md"}


async def test_a_durable_change_survives_the_loss_of_redis(
    redis_url: str, database: Database, operator: Operator
) -> None:
    """It is stored in Postgres first, so a worker can publish it again."""
    change = DocumentChanged(data=DocumentChange(project="docs", uri="weir.md", content=WEIR))
    published = await operator.run("publish", "--durable", stdin=change.to_bytes().decode() + "\n")
    await operator.lose_redis()
    async with headrace(redis_url, database) as running:
        answer = await running.client.ask(
            "docs",
            "weir",
            min_event=published.stdout.strip(),
            max_wait=timedelta(minutes=1),
            timeout=PATIENCE,
        )
        assert not answer.stale
        assert [result.citation.uri for result in answer.results] == ["weir.md"]


async def test_a_project_with_a_key_accepts_signed_changes_only(
    running: Headrace, operator: Operator
) -> None:
    """A change that is not signed is rejected with the reason."""
    key = (await operator.read("keys", "add", "--project", "docs"))["signing_key"]
    forged = await running.change("gate.md", GATE)
    assert isinstance(forged, DocumentRejected)
    assert forged.data.problem.type == "SignatureRefused"
    async with Client.connect(running.redis_url, signing_key=key) as publisher:
        receipt = await publisher.upsert("docs", "gate.md", GATE)
    assert isinstance(await running.outcome(receipt), DocumentIndexed)


@pytest.mark.usefixtures("synced_writes")
async def test_the_doctor_finds_and_repairs_what_differs_from_the_log(
    weir: Headrace, operator: Operator
) -> None:
    """The index can be damaged; the log says what it must contain."""
    await weir.change("notes/5.md", GATE)
    assert await operator.examine() == []
    await operator.damage("a deleted chunk")
    assert await operator.examine() == ["document.rows"]
    await operator.run("doctor", "--project", "docs", "--repair")
    assert await operator.examine() == []
    assert await cited(weir) == {"weir.md", "notes/5.md"}
