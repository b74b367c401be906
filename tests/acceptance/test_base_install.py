"""`pip install headrace`: the client, without the packages of the workers."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.bare_install import BareInstall, install_client
from tests.support.databases import Database
from tests.support.running import headrace

PROGRAM = """
import asyncio, json, sys
from headrace import BlockingClient, Client, DocumentIndexed

url = sys.argv[1]
with BlockingClient.connect(url) as client:
    receipt = client.upsert("notes", "herons.md", "Herons nest in March.", title="Herons")
    [outcome] = client.outcomes([receipt])
    assert isinstance(outcome, DocumentIndexed)
    answer = client.ask("notes", "when do herons nest?", min_event=receipt.token)


async def move():
    async with Client.connect(url) as client:
        moved = await client.rename("notes", "birds.md", "herons.md", "Herons nest in April.")
        await client.wait([moved])
        return await client.ask("notes", "herons")


answers = [answer, asyncio.run(move())]
print(json.dumps([[result.citation.uri, result.content] for a in answers for result in a.results]))
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> BareInstall:
    return install_client(tmp_path_factory.mktemp("bare"))


async def test_the_base_install_publishes_and_asks(
    bare: BareInstall, redis_url: str, database: Database
) -> None:
    """A module of the client that imports a package of the workers ends the program."""
    async with headrace(redis_url, database):
        ended = await asyncio.to_thread(bare.run, "python", "-c", PROGRAM, redis_url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert json.loads(ended.stdout) == [
        ["herons.md", "Herons nest in March."],
        ["birds.md", "Herons nest in April."],
    ]


def test_the_base_install_brings_little(bare: BareInstall) -> None:
    """Two packages, and what they need."""
    small = {"annotated-types", "pydantic", "pydantic-core", "redis"}
    typing = {"typing-extensions", "typing-inspection"}
    # redis needs async-timeout on the first releases of Python 3.11
    assert bare.installed - {"async-timeout"} == small | typing
    for name in ("asyncpg", "structlog", "numpy", "faust", "typer"):
        assert "ModuleNotFoundError" in bare.run("python", "-c", f"import {name}").stderr


@pytest.mark.parametrize("arguments", [(), ("--help",), ("ask", "--project", "notes", "when?")])
def test_the_command_of_the_base_install_names_the_extra(
    bare: BareInstall, arguments: tuple[str, ...]
) -> None:
    ended = bare.run("headrace", *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    [line] = ended.stderr.splitlines()
    assert line.startswith("headrace: ")
    assert "pip install 'headrace[worker]'" in line
