"""`pip install headrace-client`: the client over HTTP, without any part of the application."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.bare_install import BareInstall, install_client
from tests.support.forking import ROOT
from tests.support.gateways import Gateway

PROGRAM = """
import asyncio, sys
from headrace_client import AsyncHeadrace, Headrace

url, key, name = sys.argv[1:]
with Headrace(url, key) as headrace:
    docs = headrace.project(name)
    with docs.batch() as batch:
        batch.upsert("herons.md", "Herons nest in March.")
    [*_, last] = batch.follow()
    assert last.indexed == 1


async def ask():
    async with AsyncHeadrace(url, key) as headrace:
        return await headrace.project(name).ask("when do herons nest?", mode="keyword")


for result in asyncio.run(ask()):
    print(result.citation, result.content)
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> BareInstall:
    return install_client(tmp_path_factory.mktemp("bare"), ROOT / "clients/python")


async def test_the_wheel_publishes_and_asks(bare: BareInstall, served: Gateway) -> None:
    """A module of the client that imports something that the wheel does not need ends it."""
    key = await served.key()
    arguments = ("-c", PROGRAM, served.url, key, served.project)
    ended = await asyncio.to_thread(bare.run, "python", *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "herons.md:1-1 Herons nest in March.\n"


def test_the_wheel_brings_little(bare: BareInstall) -> None:
    """Three packages, and what they need."""
    assert bare.installed >= {"httpx2", "pydantic", "stamina", "tenacity"}
    assert len(bare.installed) <= 16
    for name in ("headrace", "events", "redis", "opentelemetry", "fastapi", "structlog"):
        assert "ModuleNotFoundError" in bare.run("python", "-c", f"import {name}").stderr


def test_the_wheel_is_typed(bare: BareInstall) -> None:
    [package] = bare.path.glob("lib/python3*/site-packages/headrace_client")
    assert (package / "py.typed").exists()
