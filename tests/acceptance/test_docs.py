"""Every code block of the README and of docs/ does what its page says."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from events.models import parse_event
from processors.embedders.hash_embedder import HASHING_MODEL
from tests.support.forking import ROOT
from tests.support.pages import PAGES, Block, blocks_of
from tests.support.repositories import create_repository
from tests.support.shell import Shell, install_headrace, require_programs, shell

PLACE = "redis://localhost:6379/0"
LANGUAGES = {"bash", "output", "python", "json", "text"}
REASONS = {
    "installs packages",
    "needs Docker",
    "needs Kafka",
    "needs Kubernetes",
    "needs the key of a provider",
    "needs a model",
    "does not end",
}
MOST_NOT_RUN = 18
README = "README.md"
QUICKSTART = "docs/quickstart.md"
GENERATED = "docs/reference/commands.md"
BLOCKS = {page: blocks for page in PAGES if page != GENERATED and (blocks := blocks_of(page))}


def test_every_block_says_what_it_is() -> None:
    """A block in another language would not be run."""
    every = [block for blocks in BLOCKS.values() for block in blocks]
    assert [block for block in every if block.language not in LANGUAGES] == []
    for page, blocks in BLOCKS.items():
        assert (ROOT / page).read_text().count("```") == 2 * len(blocks), page


def test_few_blocks_are_not_run() -> None:
    """Each of them gives one of a few reasons."""
    reasons = [block.not_run for blocks in BLOCKS.values() for block in blocks if block.not_run]
    assert set(reasons) <= REASONS
    assert len(reasons) <= MOST_NOT_RUN


class Reader:
    """A person who follows a page, in a clone of the repository."""

    def __init__(self, environment: dict[str, str], lines: Shell) -> None:
        self._environment = environment
        self._shell = lines
        self._output = ""
        self._names: dict[str, Any] = {"print": self._print}
        self.printed: list[tuple[object, ...]] = []

    async def follow(self, page: str) -> None:
        """Run the blocks of a page in order."""
        for block in BLOCKS[page]:
            try:
                await self._do(block)
            except Exception as error:
                raise AssertionError(f"{block}\n{error}") from error

    async def _do(self, block: Block) -> None:
        match block.language:
            case _ if block.not_run:
                pass
            case "bash":
                self._output = await self._shell.run(block.text)
            case "python":
                await asyncio.to_thread(self._run, block.text)
            case "json":
                data = json.loads(block.text)
                if "type" in data:
                    parse_event(block.text.encode())
            case "output":
                assert [line for line in block.text.splitlines() if line not in self._output] == []

    def _run(self, text: str) -> None:
        with patch.dict(os.environ, HEADRACE_HOME=self._environment["HEADRACE_HOME"]):
            exec(text.replace(PLACE, self._environment["REDIS_URL"]), self._names)  # noqa: S102

    def _print(self, *values: object) -> None:
        self.printed.append(values)


def environment_in(home: Path) -> dict[str, str]:
    """``headrace`` on the path, a home with nothing in it, and a model that takes no time."""
    home.mkdir(exist_ok=True)
    install_headrace(home)
    return {
        "HOME": str(home),
        "PATH": f"{home}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HEADRACE_HOME": str(home / ".headrace"),
        "HEADRACE_MODEL": HASHING_MODEL,
    }


def stop(environment: dict[str, str]) -> None:
    """Stop servers that run."""
    subprocess.run(["headrace", "down"], env=environment, check=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the documents of this one."""
    files: dict[str, str | bytes] = {page: (ROOT / page).read_bytes() for page in PAGES}
    return create_repository(tmp_path_factory.mktemp("repository"), files).path


@pytest.fixture
def clone(repository: Path, tmp_path: Path) -> Path:
    """A clone of the repository for one reader."""
    return shutil.copytree(repository, tmp_path / "headrace")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Environment of readers whose servers run."""
    environment = environment_in(tmp_path_factory.mktemp("up"))
    try:
        subprocess.run(["headrace", "up", "--detach"], env=environment, check=True)
        servers = json.loads((Path(environment["HEADRACE_HOME"]) / "up.json").read_text())
        yield environment | {"REDIS_URL": servers["redis_url"]}
    finally:
        stop(environment)


@asynccontextmanager
async def reader(clone: Path, environment: dict[str, str]) -> AsyncIterator[Reader]:
    async with shell(clone, environment) as lines:
        yield Reader(environment, lines)


async def test_the_quickstart_needs_no_servers(tmp_path: Path, clone: Path) -> None:
    """It starts its own, and stops them."""
    home = tmp_path / "home"
    environment = environment_in(home)
    try:
        async with reader(clone, environment) as newcomer:
            await newcomer.follow(QUICKSTART)
        assert not (home / ".headrace" / "up.json").exists()
    finally:
        stop(environment)


@pytest.mark.parametrize("page", [page for page in BLOCKS if page not in (README, QUICKSTART)])
async def test_what_a_page_shows_works(
    page: str, clone: Path, request: pytest.FixtureRequest
) -> None:
    lines = [block.text for block in BLOCKS[page] if block.language == "bash" and not block.not_run]
    require_programs("".join(lines))
    up: dict[str, str] = request.getfixturevalue("up")
    async with reader(clone, up) as user:
        await user.follow(page)


async def test_the_python_example_publishes_and_finds(clone: Path, up: dict[str, str]) -> None:
    """A newcomer copies it, names their Redis, and reads the answer with its place."""
    [example] = [block.text for block in BLOCKS[README] if block.language == "python"]
    assert PLACE in example
    async with reader(clone, up) as newcomer:
        await newcomer.follow(README)
    assert newcomer.printed == [("herons.md", "Herons nest in March.")]
