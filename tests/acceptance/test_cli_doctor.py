"""``headrace doctor`` as an operator uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.drifts import DRIFTS
from tests.support.processes import WorkerProcess
from tests.support.replays import damage

pytestmark = pytest.mark.usefixtures("synced_writes")


@pytest.fixture
async def cli(redis_url: str, database: Database, tmp_path: Path) -> AsyncIterator[Cli]:
    """Command line beside a running worker, with twelve notes in the project ``notes``."""
    directory = tmp_path / "notes"
    (directory / "notes").mkdir(parents=True)
    for number in range(12):
        (directory / "notes" / f"{number}.md").write_text(f"# Note {number}\n\nWeir {number}.\n")
    environment = environment_of(redis_url, database, tmp_path / "home")
    async with WorkerProcess(redis_url, database, {"HEADRACE_HOME": environment["HEADRACE_HOME"]}):
        cli = Cli(environment)
        synced = await cli("sync", str(directory), "--project", "notes", "--wait")
        assert synced.code == 0, synced
        yield cli


async def test_a_healthy_installation(cli: Cli, database: Database) -> None:
    """An index without findings is reported with exit code 0 while a worker runs.

    If a replica is named, its state is reported too.
    """
    result = await cli.typed("doctor")
    assert result.code == 0, result
    assert "notes: generation" in result.stdout
    assert "12 documents: nothing to repair" in result.stdout
    no_replica = {"HEADRACE_READ_DATABASE_URL": database.worker_url}
    found = (await cli("doctor", "--json", "--project", "notes", **no_replica)).json
    assert "postgres.replica" in {one["name"] for one in found["environment"]}
    status = (await cli("status", **no_replica)).stdout
    assert "replica of Postgres: HEADRACE_READ_DATABASE_URL names a server that takes" in status
    assert found["healthy"] is True
    assert found["unexamined"] is None
    assert {one["state"] for one in found["environment"]} <= {"ok", "warning"}
    assert [one["findings"] for one in found["projects"]] == [[]]


async def test_damage_made_by_hand(cli: Cli, database: Database) -> None:
    """The doctor reports each finding with exit code 1, repairs it, and then finds none."""
    before = (await cli("doctor", "--json")).json["projects"][0]["digest"]
    for kind in (
        "a deleted chunk",
        "a changed title",
        "all segments removed",
        "a document that the log never had",
    ):
        expected, statement = DRIFTS[kind]
        await damage(database, statement)

        result = await cli("doctor")
        assert result.code == 1, result
        for name in expected:
            assert name in result.stdout
        assert "headrace doctor --project notes --repair" in result.stdout

        repaired = await cli("doctor", "--repair", "--json")
        assert repaired.code == 0, repaired
        [project] = repaired.json["projects"]
        assert {finding["name"] for finding in project["repaired"]} == expected
        assert (project["findings"], project["failures"]) == ([], [])
        assert project["digest"] == before
        assert (await cli("doctor")).code == 0


async def test_what_is_not_fit_is_said(cli: Cli) -> None:
    """Without Postgres the doctor reports the problem, examines no index and exits with code 1."""
    result = await cli("doctor", HEADRACE_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert result.code == 1
    assert "PROBLEM  postgres" in result.stdout
    assert "the index was not examined" in result.stdout
    assert "Traceback" not in result.stderr


async def test_an_unknown_project(cli: Cli) -> None:
    """The error lists the projects that exist."""
    assert "use one of notes" in (await cli("doctor", "--project", "nots")).line
