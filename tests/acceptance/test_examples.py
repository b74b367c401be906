"""Every file of ``examples/`` against a real gateway and a real worker."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from runpy import run_path
from types import ModuleType
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest

from headrace_client import AsyncHeadrace, AsyncProject, Filters
from tests.support.forking import ROOT
from tests.support.gateways import Gateway
from tests.support.http_file import requests_of, send_all
from tests.support.shell import require_programs
from tests.support.waiting import patience

EXAMPLES = ROOT / "examples"
REQUESTS = EXAMPLES / "requests.http"
PRINTED = "herons.md:1-1\nHerons nest in March.\n"


@pytest.fixture
async def environment(served: Gateway) -> dict[str, str]:
    """The variables of ``.env.example``, with the values of the gateway."""
    lines = (EXAMPLES / ".env.example").read_text().splitlines()
    names = [line.partition("=")[0] for line in lines if line and not line.startswith("#")]
    values = {"HEADRACE_URL": served.url, "HEADRACE_API_KEY": await served.key()}
    assert names == list(values)
    return values


@pytest.fixture
async def notes(served: Gateway, environment: Mapping[str, str]) -> AsyncIterator[AsyncProject]:
    url, key = environment.values()
    async with AsyncHeadrace(url, key) as client:
        yield client.project(served.project)


async def run(environment: Mapping[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT / "clients/python/src"), str(ROOT)])
    return await asyncio.to_thread(
        subprocess.run,
        command,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=patience(60),
    )


def example(name: str) -> ModuleType:
    """Load an example by its file name."""
    spec = spec_from_file_location(f"examples.{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # pydantic resolves annotations by it
    spec.loader.exec_module(module)
    return module


async def test_a_folder_is_indexed_and_followed(
    served: Gateway, environment: Mapping[str, str], notes: AsyncProject, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    (folder / "birds").mkdir(parents=True)
    (folder / "birds/herons.md").write_text("Herons nest in March.\n")
    (folder / "ducks.txt").write_text("Ducks nest in May.\n")
    (folder / "image.bin").write_bytes(b"\xff\x00")
    (folder / ".hidden").write_text("hidden")
    script = str(EXAMPLES / "index_folder.py")
    program = [sys.executable, script, served.project, str(folder), "docs/"]

    first = await run(environment, *program)
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[-1].startswith("2 of 2 handled")
    assert first.stderr == f"skipped: {folder / 'image.bin'} is not text\n"
    uris = [document.uri async for document in notes.documents()]
    assert uris == ["docs/birds/herons.md", "docs/ducks.txt"]

    (folder / "ducks.txt").unlink()
    second = await run(environment, *program)
    assert second.returncode == 0, second.stderr
    assert [document.uri async for document in notes.documents()] == ["docs/birds/herons.md"]

    missing = await run(environment, *program[:3], str(tmp_path / "missing"), "docs/")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == f"{tmp_path / 'missing'} is not a folder\n"
    assert [document.uri async for document in notes.documents()] == ["docs/birds/herons.md"]

    program[2] = "new"  # the key of an operator, for whom the project need not exist
    third = await run({**environment, "HEADRACE_API_KEY": await served.key(None)}, *program)
    assert third.returncode == 0, third.stderr
    assert third.stdout.splitlines()[-1].startswith("1 of 1 handled")


async def test_a_folder_can_not_be_indexed_with_a_wrong_key(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    wrong = {**environment, "HEADRACE_API_KEY": "hr_00000000_wrong"}
    ended = await run(
        wrong, sys.executable, str(EXAMPLES / "index_folder.py"), "notes", str(tmp_path)
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    [line] = ended.stderr.splitlines()
    assert "key" in line


async def test_the_smoke_test_passes_and_leaves_nothing(
    served: Gateway, environment: Mapping[str, str], notes: AsyncProject
) -> None:
    require_programs((EXAMPLES / "smoke.sh").read_text())
    ended = await run(environment, str(EXAMPLES / "smoke.sh"), served.project)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == f"ok: {environment['HEADRACE_URL']}\n"
    assert [document.uri async for document in notes.documents()] == []


async def test_the_smoke_test_fails_with_a_wrong_key(environment: Mapping[str, str]) -> None:
    require_programs((EXAMPLES / "smoke.sh").read_text())
    wrong = {**environment, "HEADRACE_API_KEY": "hr_00000000_wrong"}
    ended = await run(wrong, str(EXAMPLES / "smoke.sh"), "notes")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert '"code":"Unauthenticated"' in ended.stderr


async def test_every_request_of_the_file_succeeds(
    served: Gateway, environment: Mapping[str, str]
) -> None:
    key = await served.key("notes")
    responses = await send_all(REQUESTS, {**environment, "HEADRACE_API_KEY": key})
    _, requests = requests_of(REQUESTS)
    failed = [
        (request.title, response)
        for request, response in zip(requests, responses, strict=True)
        if response.status_code not in (200, 201, 202)
    ]
    assert failed == []


async def test_the_file_of_requests_has_every_route(served: Gateway) -> None:
    document = await openapi_of(served)
    routes = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    _, requests = requests_of(REQUESTS)
    shown = {(request.method, path_of(request.url, document["paths"])) for request in requests}
    assert shown >= routes


async def openapi_of(served: Gateway) -> dict[str, dict[str, dict[str, object]]]:
    async with served.client(None) as client:
        document: dict[str, dict[str, dict[str, object]]] = (
            await client.get("/openapi.json")
        ).json()
    return document


def path_of(url: str, paths: Mapping[str, object]) -> str:
    """The path of the document that a URL of the file is an example of."""
    filled = url.replace("{{url}}", "").replace("{{project}}", "/v1/projects/notes")
    path = urlsplit(filled).path
    patterns = {name: re.sub(r"\{\w+\}", "[^/:]+", name) for name in paths}
    # a path without parameters is meant before one that has them
    for name in sorted(paths, key=lambda name: name.count("{")):
        if re.fullmatch(patterns[name], re.sub(r"\{\{.*\}\}", "id", path)):
            return name
    return path


async def fill(notes: AsyncProject) -> None:
    """Publish two documents, and wait until they are searchable."""
    async with notes.batch() as batch:
        await batch.upsert("herons.md", "Herons nest in March.", title="Herons")
        await batch.upsert("ducks.txt", "Ducks nest in May.", metadata={"year": 2024})
    [*_, last] = [progress async for progress in batch.follow()]
    assert last.indexed == 2


async def print_results(
    name: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Run an example as a program in this process, which has imported its libraries."""

    def run_here() -> None:
        with patch.object(sys, "argv", [name, *arguments]), patch.dict(os.environ, environment):
            run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")

    await asyncio.to_thread(run_here)


async def test_langchain_retrieves(
    served: Gateway,
    environment: Mapping[str, str],
    notes: AsyncProject,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await fill(notes)
    url, key = environment.values()
    module = example("langchain_retriever")
    retriever = module.HeadraceRetriever(project=served.project, url=url, api_key=key, limit=1)
    assert isinstance(retriever, module.BaseRetriever)
    [document] = await asyncio.to_thread(retriever.invoke, "when do herons nest?")
    assert document.page_content == "Herons nest in March."
    assert document.metadata["source"] == "herons.md:1-1"
    assert document.metadata["title"] == "Herons"
    only_text = retriever.model_copy(update={"filters": Filters(kinds=("text",))})
    [document] = await only_text.ainvoke("when do herons nest?")
    assert (document.metadata["source"], document.metadata["year"]) == ("ducks.txt:1-1", 2024)
    await print_results("langchain_retriever", [served.project, "herons"], environment)
    assert PRINTED in capsys.readouterr().out


async def test_llamaindex_retrieves(
    served: Gateway,
    environment: Mapping[str, str],
    notes: AsyncProject,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await fill(notes)
    url, key = environment.values()
    module = example("llamaindex_retriever")
    retriever = module.HeadraceRetriever(served.project, url=url, api_key=key, limit=1)
    assert isinstance(retriever, module.BaseRetriever)
    [node] = await asyncio.to_thread(retriever.retrieve, "when do herons nest?")
    assert (node.text, node.metadata["source"]) == ("Herons nest in March.", "herons.md:1-1")
    assert node.score > 0
    only_text = module.HeadraceRetriever(
        served.project, url=url, api_key=key, filters=Filters(kinds=("text",))
    )
    [node] = await only_text.aretrieve("when do herons nest?")
    assert node.metadata["source"] == "ducks.txt:1-1"
    await print_results("llamaindex_retriever", [served.project, "herons"], environment)
    assert PRINTED in capsys.readouterr().out
