"""Chunking of collections by the commands that a person types."""

from __future__ import annotations

from pathlib import Path

from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.processes import WorkerProcess

TALK = " ".join(f"Sentence {n} of the talk is about the sluice gates of a weir." for n in range(60))


async def test_a_collection_is_cut_by_topic(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """The choice is listed, named by a dry run, and in effect after the replay."""
    cli = Cli(environment_of(redis_url, database, tmp_path / "home"))
    folder = tmp_path / "talks"
    folder.mkdir()
    (folder / "talk.txt").write_text(TALK)
    sync = ("sync", str(folder), "--project", "docs", "--collection", "talks")
    async with WorkerProcess(redis_url, database, {}):
        assert (await cli(*sync, "--vectors")).code == 0
        chosen = await cli.typed(
            "collection", "set", "talks", "--chunking", "semantic", "--project", "docs"
        )
        command = "headrace replay --project docs --collection talks"
        assert chosen.stdout.splitlines()[0] == (
            f"docs: collection talks will be cut as semantic by `{command}`"
        )
        plan = await cli(*command.split()[1:], "--dry-run", "--json")
        assert plan.json["sentences"] == 60
        replayed = await cli(*command.split()[1:], "--json")
        assert replayed.code == 0, replayed
        (folder / "talk.txt").write_text(TALK.replace("Sentence 30", "Remark 30"))
        preview = await cli(*sync, "--dry-run")
        assert "cut by topic" in preview.stdout
        again = await cli("collection", "set", "talks", "--chunking", "semantic", "-p", "docs")
        assert "as before" in again.stdout

    listed = await cli("collection", "list", "--project", "docs", "--json")
    talks, others = listed.objects
    assert (talks["collection"], talks["documents"], talks["chunking"]) == ("talks", 1, "semantic")
    assert talks["chunks"] > 3
    assert others == {
        "collection": "",
        "documents": None,
        "chunks": None,
        "chunking": "auto",
        "after_replay": None,
    }
    former, live = (await cli("replay", "list", "--project", "docs", "--json")).objects
    assert (former["strategies"], live["strategies"]) == ({}, {"talks": "semantic"})
    table = (await cli("collection", "list", "--project", "docs")).stdout
    assert "(all others)" in table

    refused = await cli("collection", "set", "talks", "--chunking", "topics", "-p", "docs")
    assert (refused.code, "name one of auto" in refused.line) == (1, True)
    both = await cli("collection", "set", "talks", "--others", "--chunking", "auto", "-p", "docs")
    assert (both.code, "--others" in both.line) == (1, True)
    window = await cli("collection", "set", "--others", "--chunking", "fixed:200:30", "-p", "docs")
    assert "all other documents will be cut as fixed:200:30" in window.stdout
    assert "`headrace replay --project docs`" in window.stdout
