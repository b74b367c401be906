"""Demo on embedded servers: answers, second run, and both forms of output."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

from gateway.demonstration import ABOUT_ANYTHING, ABOUT_HEADRACE, FILES, REPOSITORY
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.embedders.local.weights import OFFICIAL_NAME
from tests.support.cli import Cli

BY_KEYWORD = {
    "How long do dead letters stay?": "Dead letters stay until",
    "Where are the names of streams, groups and keys built?": "built here and nowhere else",
}
FOUND_BY_MEANING = ("sources/files.py", "sources/directory.py", "sources/git.py", "README.md")


def cli_of(home: Path, model: str) -> Cli:
    """Command line that uses embedded servers."""
    servers = {"HEADRACE_REDIS_URL": "", "HEADRACE_DATABASE_URL": ""}
    return Cli({"HEADRACE_HOME": str(home), "HEADRACE_MODEL": model, **servers})


def check_shape(shown: dict[str, Any], questions: tuple[str, ...]) -> None:
    """Assert the order of the steps, and an answer per question before and after the vectors."""
    times = [shown[f"{what}_s"] for what in ("ready", "searchable", "answered", "vectors")]
    assert times == sorted(times)
    assert [one["question"] for one in shown["answers"]] == list(questions)
    for one in shown["answers"]:
        assert 0 <= one["first"]["coverage"] <= 1
        assert one["last"]["coverage"] == 1
        check_answer(one["last"])


PLACE = re.compile(r":\d+-\d+$| page \d+$|#")


def check_answer(answer: dict[str, Any]) -> None:
    assert answer["content"]
    assert answer["ms"] > 0
    assert answer["citations"]
    assert all(PLACE.search(place) for place in answer["citations"])


async def test_demo_of_the_repository_and_a_second_run(tmp_path: Path) -> None:
    """The demo indexes the chosen files; a second run publishes nothing and suggests commands."""
    cli = cli_of(tmp_path, HASHING_MODEL)
    shown = (await cli("demo", "--json")).json
    check_shape(shown, ABOUT_HEADRACE)
    for one in shown["answers"]:
        check_answer(one["first"])
    counts = shown["sync"]
    assert counts["found"] == counts["published"] == counts["indexed"] == len(FILES)

    again = await cli("demo")
    assert f"{len(FILES)} unchanged, 0 published" in again.stdout
    assert "ready after" in again.stderr
    for question in ABOUT_HEADRACE:
        assert f"{question} (" in again.stdout
    *_, next_commands = again.stdout.partition("Try next")
    assert "headrace up " in next_commands

    for question, held in BY_KEYWORD.items():
        found = await cli("ask", "--project", "demo", "--mode", "keyword", "--json", question)
        # a sentence may be wrapped at any word
        assert held in " ".join(found.json["results"][0]["content"].split())


async def test_demo_of_a_directory_by_the_local_model(tmp_path: Path) -> None:
    """Vectors find code that shares no distinctive word with the question."""
    notes = tmp_path / "notes"
    notes.mkdir()
    for uri in FOUND_BY_MEANING:
        shutil.copy(REPOSITORY / uri, notes)
    cli = cli_of(tmp_path / "home", OFFICIAL_NAME)
    shown = (await cli("demo", "--json", str(notes))).json
    check_shape(shown, ABOUT_ANYTHING)
    assert shown["sync"]["indexed"] == len(FOUND_BY_MEANING)
    question = "Which code decides that a file is not text?"
    found = (await cli("ask", "--project", "demo-notes", "--json", question)).json
    assert found["coverage"] == 1
    assert "def to_text(" in found["results"][0]["content"]
