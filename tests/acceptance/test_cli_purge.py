"""A purge: purged text is in no file of servers or archive, and does not return."""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from string import ascii_lowercase

import asyncpg
import pytest

from events.client.client import Client
from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.cli import Cli, Command
from tests.support.raw_files import files_with
from tests.support.waiting import eventually


def secret_word() -> str:
    return "q" + "".join(secrets.choice(ascii_lowercase) for _ in range(18))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
async def cli(home: Path) -> AsyncIterator[Cli]:
    """Command line beside a running ``up`` whose servers keep their files below ``home``."""
    cli = Cli(
        {
            "HEADRACE_REDIS_URL": "",
            "HEADRACE_DATABASE_URL": "",
            "HEADRACE_OWNER_DATABASE_URL": "",
            "HEADRACE_MODEL": HASHING_MODEL,
            "HEADRACE_INLINE_CONTENT_BYTES": "4096",
            "HEADRACE_HOME": str(home),
        }
    )
    up = await Command.start("up", environment=cli.environment)
    try:
        await eventually((home / "up.json").exists, "up is up", timeout=60)
        yield cli
    finally:
        up.send(signal.SIGINT)
        assert (await up.result(60)).code == 0


def change(uri: str, content: str | None, **data: object) -> str:
    plain = {"project": "docs", "uri": uri, "content": content, **data}
    return json.dumps({"type": "document.changed", "data": plain})


async def publish(cli: Cli, *changes: str) -> None:
    result = await cli("publish", "--wait", "--vectors", stdin="\n".join(changes))
    assert result.code == 0, result.stderr


def running(home: Path) -> dict[str, str]:
    """URLs of the servers of ``up``."""
    urls: dict[str, str] = json.loads((home / "up.json").read_text())
    return urls


async def operator(cli: Cli, home: Path) -> dict[str, str]:
    """Settings with an operator's users and the owner's URL."""
    made = await cli("access", "--json")
    [urls] = [role for role in made.json["roles"] if role["role"] == "operator"]
    owner = running(home)["owner_database_url"]
    return {
        "HEADRACE_REDIS_URL": urls["redis_url"],
        "HEADRACE_DATABASE_URL": urls["database_url"],
        "HEADRACE_OWNER_DATABASE_URL": owner,
    }


@pytest.mark.timeout(400)
async def test_purged_text_is_in_no_file_and_does_not_come_back(cli: Cli, home: Path) -> None:
    """A purge removes texts, titles, headings, former versions, renamed and rejected contents."""
    words = [secret_word() for _ in range(7)]
    text, title, heading, former, big, moved, refused = words
    stays = secret_word()
    filler = "\n\n".join(f"Paragraph {n} is about valves and pumps." for n in range(300))
    await publish(cli, change("secret.md", f"# Before\n\nIt was {former} then."))
    await publish(
        cli,
        change("secret.md", f"# {heading}\n\nNow it is {text}.", title=f"On {title}"),
        change("big.md", f"{filler}\n\nThe word {big} ends it."),
        change("stays.md", f"# Valves\n\nThe word {stays} stays."),
        change("first.md", f"# Moved\n\nThe word {moved} moves."),
    )
    renamed = change(
        "second.md", f"# Moved\n\nThe word {moved} moved.", change="rename", old_uri="first.md"
    )
    await publish(cli, renamed)
    await cli("publish", "--wait", stdin=change("bad.pdf", f"The word {refused}", kind="pdf"))
    asked = (await cli("ask", "-p", "docs", text, "--mode", "keyword", "--json")).json
    assert text in asked["results"][0]["content"]
    async with Client.connect(running(home)["redis_url"]) as client:
        await client.judge("docs", asked["query_id"], asked["results"][0]["chunk_id"], "used")

    def everywhere() -> bool:
        """Each word is in the archive, and so in every earlier store too."""
        found = files_with([*words, stays], home)
        return all(any("archive" in path for path in found.get(word, [])) for word in words)

    await eventually(everywhere, "all is archived", timeout=60)
    owner = await asyncpg.connect(running(home)["owner_database_url"])
    await owner.execute("analyze")  # so that the statistics contain samples of the texts
    await owner.close()
    found = files_with(words, home)
    places = {path.split("/")[0] for paths in found.values() for path in paths}
    assert places >= {"archive", "postgres", "redis"}

    replayed = await cli("replay", "-p", "docs", "--json")  # a former generation has it too
    assert replayed.code == 0, replayed.stderr
    uris = "secret.md", "big.md", "second.md", "first.md", "bad.pdf"
    purge = "document", "purge", *uris, "--unknown", "-p", "docs", "--yes", "--json"
    settings = await operator(cli, home)
    assert "administrator in HEADRACE_REDIS_URL" in (await cli(*purge, **settings)).line
    settings["HEADRACE_REDIS_URL"] = running(home)["redis_url"]
    ownerless = await cli(*purge, **{**settings, "HEADRACE_OWNER_DATABASE_URL": ""})
    assert "set HEADRACE_OWNER_DATABASE_URL" in ownerless.line
    assert len((await cli("document", "list", "-p", "docs", "--json")).objects) == 4
    purged = await cli(*purge, **settings)
    assert purged.code == 0, purged
    assert purged.json["complete"] is True
    assert purged.json["removed"]["judgements"] == "1"
    assert files_with(words, home) == {}
    assert files_with([stays], home) != {}

    replayed = await cli("replay", "-p", "docs", "--json")
    assert replayed.code == 0, replayed.stderr
    listed = await cli("document", "list", "-p", "docs", "--json")
    assert [document["uri"] for document in listed.objects] == ["stays.md"]
    doctor = (await cli("doctor", "-p", "docs", "--json")).json
    assert [project["findings"] for project in doctor["projects"]] == [[]]
    assert files_with(words, home) == {}
    again = await cli("ask", "-p", "docs", stays, "--mode", "keyword")
    assert stays in again.stdout


async def is_refused(cli: Cli, question: str) -> bool:
    return (await cli("ask", "-p", "docs", question)).code == 1


@pytest.mark.timeout(400)
async def test_projects_and_sources_go(cli: Cli, home: Path, tmp_path: Path) -> None:
    """A deleted source takes its documents along; a deleted project starts empty again."""
    word, kept = secret_word(), secret_word()
    (tmp_path / "pumps").mkdir()
    assert (await cli("sync", str(tmp_path / "pumps"), "-p", "docs", "--wait")).code == 0
    [source] = (await cli("source", "list", "-p", "docs", "--json")).objects
    origin = {"source": source["id"], "revision": 1}
    await publish(
        cli,
        change("pumps.md", f"# Pumps\n\nThe word {word}.", origin=origin),
        change("own.md", f"# Valves\n\nThe word {word}."),
        change("kept.md", f"The word {kept}.", project="other"),
    )
    of_source = await cli("document", "list", "-p", "docs", "--source", source["source"], "--json")
    assert [document["uri"] for document in of_source.objects] == ["pumps.md"]
    assert "--yes" in (await cli("source", "delete", source["source"], "-p", "docs")).line
    gone = await cli("source", "delete", source["source"], "-p", "docs", "--yes", "--json")
    assert gone.json["deleted"] == 1
    assert (await cli("source", "list", "-p", "docs", "--json")).objects == []
    listed = (await cli("document", "list", "-p", "docs", "--json")).objects
    assert [document["uri"] for document in listed] == ["own.md"]
    asked = await cli("document", "delete", "--prefix", "", "-p", "docs")
    assert "1 document of docs is to be deleted" in asked.line

    deleted = await cli("project", "delete", "docs", "--yes", "--json")
    assert deleted.code == 0, deleted.stderr
    for kind in ("document", "source"):
        refused = await cli(kind, "list", "-p", "docs")
        assert (refused.code, refused.stdout) == (1, "")
        assert "there is no project 'docs'" in refused.line
    # a worker that has just answered caches the project for two more seconds
    await eventually(lambda: is_refused(cli, word), "the project is gone")
    await publish(cli, change("new.md", "It began again."))
    listed = (await cli("document", "list", "-p", "docs", "--json")).objects
    assert [document["uri"] for document in listed] == ["new.md"]
    doctor = (await cli("doctor", "-p", "docs", "--json")).json
    assert [project["findings"] for project in doctor["projects"]] == [[]]
    await eventually(lambda: files_with([word], home / "archive"), "it is archived", timeout=30)

    left = {row["project"]: row for row in (await cli("project", "list", "--json")).objects}
    assert set(left) == {"docs", "other", deleted.json["name"]}
    for project in (deleted.json["name"], "docs"):
        purged = await cli("project", "purge", project, "--yes", "--json")
        assert purged.code == 0, purged
    assert files_with([word], home) == {}
    remaining = (await cli("project", "list", "--json")).objects
    assert [row["project"] for row in remaining] == ["other"]
    assert kept in (await cli("ask", "-p", "other", kept, "--mode", "keyword")).stdout
