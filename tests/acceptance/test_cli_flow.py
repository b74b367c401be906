"""Commands from sync to answer, as a person types them."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from events.client.client import Client
from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.cli import Cli, Result, environment_of
from tests.support.databases import Database
from tests.support.processes import WorkerProcess
from tests.support.repositories import Repository, create_repository, write_files
from tests.support.waiting import eventually

VALVES = (
    "# Valves\n\nThe relief valve opens at seven bar.\n\n# Pumps\n\nPumps run dry in minutes.\n"
)
PUMP = 'def start_pump(litres: int) -> None:\n    """Start the feed pump."""\n    print(litres)\n'


@pytest.fixture
async def cli(redis_url: str, database: Database, tmp_path: Path) -> AsyncIterator[Cli]:
    """Command line beside a running worker."""
    async with WorkerProcess(redis_url, database, {}):
        yield Cli(environment_of(redis_url, database, tmp_path / "home"))


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    """Directory with two documents and one binary file."""
    directory = tmp_path / "plant"
    directory.mkdir()
    (directory / "valves.md").write_text(VALVES)
    (directory / "pump.py").write_text(PUMP)
    (directory / "photo.png").write_bytes(b"\x89PNG\0\0")
    return directory


async def test_sync_then_ask(cli: Cli, plant: Path) -> None:
    """A synced document is found and cited as path:start-end; the report counts every file."""
    (plant / ".env").write_text("PASSWORD=hunter2\n")
    sync = ("sync", str(plant), "--project", "plant")
    listed = (await cli(*sync, "--dry-run", "--skipped")).stdout.splitlines()
    assert listed[:2] == ["to publish (new): pump.py", "to publish (new): valves.md"]
    assert listed[2].endswith(
        ": 4 files found, 0 unchanged, 2 to publish, 0 to delete, 2 skipped (binary 1, secret 1)"
    )
    assert listed[3:] == ["skipped (secret): .env", "skipped (binary): photo.png"]
    (plant / ".env").unlink()

    report = (await cli.typed(*sync, "--wait", "--json")).json
    assert report["found"] == report["indexed"] + sum(report["skipped"].values()) == 3
    assert report["skipped"] == {"binary": 1}

    answer = await cli.typed("ask", "--project", "plant", "at which pressure does the valve open?")
    assert answer.code == 0
    assert answer.stdout.startswith("documents\n\n1. valves.md:1-7")
    assert "opens at seven bar" in answer.stdout
    assert "score" not in answer.stdout, "only with --explain"

    found = (await cli("ask", "--project", "plant", "start_pump", "--json")).json
    assert found["results"][0]["citation"]["symbol"] == "start_pump"


async def test_users_and_teams_share_a_project(cli: Cli, plant: Path) -> None:
    """A team's documents are a filter of questions; a user's are found by that user alone."""
    await cli("sync", str(plant), "-p", "plant", "--team", "works", "--wait")
    data = {"project": "plant", "uri": "own.md", "content": "My valve sticks.", "agent": "ana"}
    event = json.dumps({"type": "document.changed", "data": data})
    token = (await cli("publish", stdin=event)).stdout.strip()

    async def finds(*options: str) -> list[str]:
        ask = ("ask", "-p", "plant", "valve", "--mode", "keyword", "--min-event", token, "--json")
        results = (await cli(*ask, *options)).json["results"]
        return sorted(result["citation"]["uri"] for result in results)

    assert await finds() == ["valves.md"]
    assert await finds("--team", "works") == ["valves.md"]
    assert await finds("--team", "office") == []
    assert await finds("--user", "ana") == ["own.md", "valves.md"]
    assert await finds("--user", "ben") == ["valves.md"]
    assert (await cli("grep", "-p", "plant", "valve", "--user", "ana", "-l")).stdout.split() == [
        "own.md",
        "valves.md",
    ]
    show = ("document", "show", "own.md", "-p", "plant")
    shown = (await cli(*show, "--user", "ana")).stdout
    assert "My valve sticks." in shown
    assert shown.splitlines()[4].split() == ["title", "-"]
    assert "`headrace document list -p plant` lists all" in (await cli(*show)).line, "not shared"

    notes = plant.parent / "notes"
    write_files(notes, {"note.md": "The valve of my boiler."})
    synced = await cli("sync", str(notes), "-p", "plant", "--user", "ana", "--wait")
    assert synced.code == 0, synced
    assert await finds("--user", "ana") == ["note.md", "own.md", "valves.md"]
    assert await finds("--user", "ben") == ["valves.md"]
    listed = ("source", "list", "-p", "plant", "--json")
    assert str(notes) not in (await cli(*listed)).stdout
    assert str(notes) in (await cli(*listed, "--user", "ana")).stdout
    delete = ("source", "delete", str(notes), "-p", "plant", "--yes")
    assert (await cli(*delete, "--user", "ben")).code == 1
    assert (await cli(*delete, "--user", "ana")).code == 0
    assert await finds("--user", "ana") == ["own.md", "valves.md"]


async def test_a_linked_work_tree_is_asked_by_its_directory(cli: Cli, plant: Path) -> None:
    """In the work tree of an overlay questions see it, also after a replay; else the base."""
    repository = create_repository(plant)
    repository.commit()
    tree = Repository(plant.parent / "next")
    repository.git("worktree", "add", "--quiet", "-b", "next", str(tree.path))
    here, there = cli.within(tree.path), cli.within(plant)
    ask = ("ask", "valve", "-p", "plant", "--json")
    assert (await there("sync", ".", "-p", "plant", "--wait")).code == 0
    assert "seven bar" in (await here(*ask)).stdout, "the work tree is not synced"
    text = (tree.path / "valves.md").read_text().replace("seven bar", "nine bar")
    tree.commit({"valves.md": text})
    synced = (await here("sync", ".", "-p", "plant", "--wait")).stdout
    assert f"overlay {tree.path} of plant@" in synced
    assert " 1 published" in synced
    for rebuild in (False, True):
        if rebuild:
            assert (await cli("replay", "-p", "plant")).code == 0
        found = (await here(*ask)).stdout
        assert "nine bar" in found
        assert "seven bar" not in found
        assert "nine bar" in (await here("grep", "bar", "-p", "plant")).stdout
        assert "seven bar" in (await here(*ask, "--overlay", "")).stdout
        assert (await there(*ask, "--overlay", str(tree.path))).stdout.count("nine bar") == 1
        found = (await there(*ask)).stdout
        assert "seven bar" in found
        assert "nine bar" not in found
    tree.commit({"valves.md": text.replace("nine bar", "ten bar")})
    refresh = ("--refresh", "--refresh-seconds", "60")
    outside = json.loads((await here(*ask, "--overlay", "", *refresh)).stdout)
    assert outside["refresh"]["published"] == 0, "only the base is refreshed"
    assert "ten bar" in (await here(*ask, *refresh)).stdout
    assert (await there(*ask, "--overlay", "none")).code == 1
    listed = (await cli("source", "list", "-p", "plant", "--json")).stdout
    base, overlay = sorted(map(json.loads, listed.splitlines()), key=lambda row: row["base"] or "")
    assert (overlay["source"], overlay["base"]) == (str(tree.path), base["source"])
    assert overlay["documents"] == 1
    documents = (await cli("document", "list", "-p", "plant", "--prefix", "valves")).stdout
    assert documents.count("valves.md") == 2
    assert documents.count(f" {tree.path} ") == 1, "only one of both is of the overlay"
    delete = ("source", "delete", "-p", "plant", "--yes")
    assert "has overlays" in (await cli(*delete, base["source"])).stderr
    assert (await cli(*delete, str(tree.path))).stdout.endswith("was removed, 1 document deleted\n")
    assert "seven bar" in (await here(*ask)).stdout


async def test_a_question_is_asked_after_a_refresh(cli: Cli, plant: Path) -> None:
    """Edits are found without a sync; nothing is published twice; a failure becomes a line."""
    ask = (
        "ask",
        "-p",
        "plant",
        "sluice",
        "--mode",
        "keyword",
        "--refresh",
        "--refresh-seconds",
        "60",
    )
    await cli("sync", str(plant), "-p", "plant", "--include", "*.log", "--prefix", "plant/")
    (plant / "gate.log").write_text("The sluice is shut.")
    (plant / ".gitignore").write_text("*.log\n")
    answer = (await cli(*ask, "--json")).json
    assert [result["citation"]["uri"] for result in answer["results"]] == ["plant/gate.log"]
    refresh = answer["refresh"]
    assert (refresh["published"], refresh["sources"], refresh["notes"]) == (2, [str(plant)], [])
    refresh = (await cli(*ask, "--json")).json["refresh"]
    assert (refresh["published"], refresh["deleted"], refresh.get("token")) == (0, 0, None)
    shutil.rmtree(plant)
    answered = await cli(*ask)
    assert answered.code == 0
    assert "plant/gate.log" in answered.stdout
    assert answered.stderr.startswith(f"not refreshed: {plant}: {plant} doesn't exist")
    refused = await cli(*ask, "--min-event", "live:0:1-0")
    assert "--refresh waits for the changes of its own syncs" in refused.line


async def test_second_sync_publishes_what_changed(cli: Cli, plant: Path) -> None:
    """A second sync publishes edits only, and a removed file is no longer found."""
    sync = ("sync", str(plant), "--project", "plant", "--wait", "--json")
    await cli(*sync)
    assert (await cli(*sync)).json["published"] == 0

    (plant / "valves.md").write_text(VALVES.replace("seven", "nine"))
    (plant / "pump.py").unlink()
    report = (await cli(*sync)).json
    assert (report["published"], report["indexed"], report["deleted"]) == (1, 1, 1)
    found = (await cli("ask", "--project", "plant", "pump valve", "--json")).json["results"]
    assert {one["citation"]["uri"] for one in found} == {"valves.md"}
    assert any("nine bar" in one["content"] for one in found)


async def test_grep_prints_lines_as_grep_does(cli: Cli, plant: Path) -> None:
    """Lines, counts, uris and exit codes are those of grep, and the search follows pages."""
    (plant / "log.txt").write_text("\n".join(f"pump {number}" for number in range(150)))
    await cli("sync", str(plant), "--project", "plant", "--wait", "--json")
    grep = ("grep", "--project", "plant")
    lines = await cli(*grep, r"^#+ (Valves|Pumps)$")
    assert lines.stdout == "valves.md:1:# Valves\nvalves.md:5:# Pumps\n"
    around = await cli(*grep, "-F", "Start the", "-C1", "--path", "*.py")
    assert [line[:10] for line in around.stdout.splitlines()] == [
        "pump.py-1-",
        "pump.py:2:",
        "pump.py-3-",
    ]
    assert (await cli(*grep, "-i", "-w", "PUMP", "--count")).stdout == "log.txt:150\npump.py:1\n"
    assert (await cli(*grep, "pump", "-l", "--lang", "python")).stdout == "pump.py\n"
    assert len((await cli(*grep, r"pump \d", "-m", "120")).stdout.splitlines()) == 120
    printed = (await cli(*grep, "pump 9", "--json")).stdout.splitlines()
    pages = [json.loads(line) for line in printed]
    assert sum(page["exact"]["matches"] for page in pages) == 11
    result = pages[0]["results"][0]
    span = result["matches"][0]["spans"][0]
    assert result["content"][span["start"] : span["end"]] == "pump 9"
    assert (await cli(*grep, "heron")).code == 1
    refused = await cli(*grep, r"(a)\1")
    assert (refused.code, refused.stdout) == (2, "")
    assert "character 5" in refused.stderr


async def test_each_source_is_remembered_by_itself(cli: Cli, plant: Path) -> None:
    """Two sources that publish the same uris need a prefix; each keeps its own state."""
    marked = plant.with_name("plant#old")
    shutil.copytree(plant, marked)
    sync = ("sync", "--project", "plant", "--json")
    assert (await cli(*sync, str(marked))).json["published"] == 2
    refused = await cli(*sync, str(plant), "--collection", "old")
    assert str(marked) in refused.line
    prefixed = (*sync, str(plant), "--collection", "old", "--prefix", "plant/")
    preview = (await cli(*prefixed, "--dry-run")).json
    assert {one["why"] for one in preview["changes"]} == {"new"}
    assert {one["uri"] for one in preview["changes"]} == {"plant/pump.py", "plant/valves.md"}
    report = (await cli(*prefixed)).json
    assert report["published"] == 2
    assert list(report["skipped_paths"].values()) == ["binary"]
    listed = (await cli("source", "list", "--project", "plant")).stdout
    assert listed.count("1 (binary 1)") == 2, listed


async def test_publish_then_ask_for_that_event(cli: Cli) -> None:
    """``ask --min-event`` waits for the event whose token publish printed."""
    data = {"project": "notes", "uri": "one", "content": "Herons nest in March.", "kind": "text"}
    published = await cli("publish", stdin=json.dumps({"type": "document.changed", "data": data}))
    token = published.stdout.strip()
    found = (await cli("ask", "--project", "notes", "herons", "--min-event", token, "--json")).json
    assert found["stale"] is False
    assert found["results"][0]["content"] == "Herons nest in March."


async def test_vectors_can_be_waited_for(cli: Cli) -> None:
    """Publish and ask can wait for vectors; ask needs a token to wait for."""
    data = {"project": "notes", "uri": "one", "content": "Herons nest in March.", "kind": "text"}
    event = json.dumps({"type": "document.changed", "data": data})
    published = await cli("publish", "--lane", "bulk", "--vectors", stdin=event)
    asked = ["ask", "--project", "notes", "herons nest", "--mode", "vector", "--vectors"]
    found = (await cli(*asked, "--min-event", published.stdout.strip(), "--json")).json
    assert (found["stale"], found["coverage"]) == (False, 1.0)
    assert found["results"][0]["match_type"] == "vector"
    assert "--min-event" in (await cli(*asked)).line


async def test_a_sync_can_wait_for_vectors(cli: Cli, plant: Path) -> None:
    """The report of a sync that waits for vectors counts the embedded chunks."""
    sync = ["sync", "--project", "plant", "--json"]
    report = (await cli(*sync, str(plant), "--vectors")).json
    assert report["indexed"] == 2
    assert report["chunks_pending"] == 0
    assert report["chunks_embedded"] >= 2


async def test_dead_letter_is_listed_shown_redriven_and_dropped(cli: Cli) -> None:
    """An event that can't be processed stays in the dead letters with its reason."""
    reference = {"sha256": "0" * 64, "size_bytes": 10}
    data = {"project": "notes", "uri": "lost", "content_ref": reference}
    event = json.dumps({"type": "document.changed", "data": data})
    assert "rejected" in (await cli("publish", "--wait", stdin=event)).line

    async def listed() -> list[dict[str, Any]]:
        return (await cli("dead", "list", "--json")).objects

    [letter] = await eventually(listed, "it is a dead letter")
    assert letter["error"] == "UnsupportedContent"
    place, reason = (await cli.typed("dead", "list")).stdout.splitlines()
    assert place.startswith(letter["id"])
    assert place.endswith("  lost in notes")
    assert reason.strip() == f"UnsupportedContent after 1 attempt: {letter['detail']}"
    shown = await cli("dead", "show", letter["id"])
    assert "lost" in shown.stdout
    redriven = await cli("dead", "redrive", letter["id"])
    lane = letter["topic"].rpartition(".")[2]
    token = f"{lane}:{letter['partition']}:{letter['entry_id']}"
    assert redriven.stdout == f"redriven as {token}\n"
    [letter] = await eventually(listed, "it is a dead letter again")
    assert (await cli("dead", "drop", letter["id"])).code == 0
    assert "no dead letters" in (await cli("dead", "list")).stdout


async def test_status_counts(cli: Cli, plant: Path) -> None:
    """Status counts documents and archived changes per project, and no entries wait."""
    await cli("sync", str(plant), "--project", "plant", "--wait")

    async def archived() -> Any:
        status = (await cli("status", "--json")).json
        waits = any(stream["oldest_unacknowledged_s"] is not None for stream in status["streams"])
        return status if status["archive"][0]["changes"] == 2 and not waits else None

    status = await eventually(archived, "both changes are archived, and nothing waits", timeout=30)
    [project] = status["projects"]
    assert (project["project"], project["documents"]) == ("plant", 2)
    assert project["chunks"] >= 2
    assert (project["pending"], project["refused"], project["coverage"]) == (0, 0, 1.0)
    assert project["freshness_p50_ms"] > 0
    assert (project["model"], project["models"]) == (HASHING_MODEL, {})
    assert project["chunking"] == "2"
    found = (await cli("ask", "--project", "plant", "pump", "--json")).json
    assert project["generation"] == found["generation"]
    assert all(stream["pending"] == 0 for stream in status["streams"])
    [archive] = status["archive"]
    assert (archive["project"], archive["changes"], archive["contents"]) == ("plant", 2, 2)
    assert archive["bytes_per_document"] == archive["bytes"] / 2 > 0
    assert sum(stream["kept"] for stream in status["archiver"]) == 2
    assert "plant" in (await cli.typed("status")).stdout


async def test_eval_scores_each_mode(cli: Cli, tmp_path: Path) -> None:
    """Questions that name their document score 1 in keyword mode."""
    directory = tmp_path / "birds"
    directory.mkdir()
    birds = ["heron", "kestrel", "wagtail"]
    write_lines(directory / "corpus.jsonl", [{"_id": b, "text": f"The {b} nests."} for b in birds])
    write_lines(directory / "queries.jsonl", [{"_id": b, "text": f"{b} nest"} for b in birds])
    grades = "".join(f"{bird}\t{bird}\t1\n" for bird in birds)
    (directory / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + grades)

    scores = (await cli("eval", str(directory), "--json")).json
    assert set(scores) == {"hybrid", "vector", "keyword"}
    assert scores["keyword"]["ndcg@10"] == 1
    assert set(scores["hybrid"]) == {"ndcg@10", "recall@10", "mrr@10", "p50_ms", "p99_ms"}


async def test_judgements_become_an_evaluation_set(
    cli: Cli, plant: Path, tmp_path: Path, redis_url: str
) -> None:
    """An agent says what it used; ``eval`` scores the same questions on the live index."""
    assert "no question with a judged answer" in (await cli_of_absent(cli, plant)).line
    answer = (await cli("ask", "--project", "plant", "relief valve pressure", "--json")).json
    places = {result["citation"]["uri"]: result["chunk_id"] for result in answer["results"]}
    async with Client.connect(redis_url) as client:
        await client.judge("plant", answer["query_id"], places["valves.md"], "used")
    directory = tmp_path / "set"

    async def is_written() -> bool:
        feedback = "--from-feedback", "plant", "--to", str(directory)
        return (await cli("eval", *feedback)).code == 0

    await eventually(is_written, "the judgement is kept")
    corpus = json.loads((directory / "corpus.jsonl").read_text())
    assert corpus == {"_id": "valves.md", "project": "plant"}
    scores = (await cli("eval", str(directory), "--mode", "keyword", "--json")).json
    assert scores["keyword"]["ndcg@10"] == 1
    projects = (await cli("status", "--json")).json["projects"]
    assert [project["project"] for project in projects] == ["plant"], "nothing was published"


async def cli_of_absent(cli: Cli, plant: Path) -> Result:
    await cli("sync", str(plant), "--project", "plant", "--wait")
    return await cli("eval", "--from-feedback", "plant")


def write_lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


async def test_ask_for_examples(cli: Cli, plant: Path) -> None:
    """``ask --examples`` prints code with its lines; ``status`` and ``document show`` count it."""
    code = "pump = Pump(3)\npump.start()\npump.drain()"
    (plant / "pumps.md").write_text(f"# Pumps\n\nStart and drain:\n\n```python\n{code}\n```\n")
    await cli("sync", str(plant), "--project", "plant", "--wait")
    answer = await cli("ask", "--project", "plant", "drain the pump", "--examples", "--json")
    [result] = answer.json["results"]
    assert (result["kind"], result["language"], result["content"]) == (
        "code_example",
        "python",
        code,
    )
    printed = (await cli("ask", "--project", "plant", "drain the pump", "--examples")).stdout
    assert printed.startswith("1. pumps.md:6-8  Pumps\n      6  pump = Pump(3)\n")
    by_tag = ("--kind", "code_example", "--kind", "code")
    assert (await cli("ask", "--project", "plant", "pump", *by_tag, "--json")).json["results"] == []
    [project] = (await cli("status", "--project", "plant", "--json")).json["projects"]
    assert project["examples"] == 1
    shown = (await cli("document", "show", "pumps.md", "--project", "plant")).stdout
    assert "code example, lines 6-8  Pumps" in shown
    refused = await cli("replay", "--project", "plant", "--kind", "code_example")
    assert "code examples are rebuilt with their documents" in refused.line
