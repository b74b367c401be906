"""Registry of extractors."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

from content import registry
from content.registry import EXTRACTORS, extract
from content.rendition import Rendition
from runtime.errors import LimitExceeded, UnsupportedContent
from tests.support.forking import ROOT

LIBRARIES = {"lxml", "mammoth", "pptx", "pypdfium2", "python_calamine", "selectolax"}
"""Libraries of formats alone; PyYAML is loaded by others too."""


@pytest.fixture
def repeating(monkeypatch: pytest.MonkeyPatch) -> str:
    """Kind of a test: a document is the size of its text in bytes."""

    def repeat(raw: bytes) -> Rendition:
        return Rendition(("é" * (int(raw) // 2 - 1), ""))

    module = ModuleType("repeating")
    module.repeat = repeat  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(registry, "EXTRACTORS", {"repeated": "repeating:repeat"})
    return "repeated"


def test_a_kind_without_an_extractor_is_refused() -> None:
    """The error lists the kinds that have one."""
    assert "markdown" not in EXTRACTORS
    with pytest.raises(UnsupportedContent, match="notebook"):
        extract("markdown", b"")


def test_every_kind_has_a_module_of_its_own() -> None:
    """Each row names a function of an extractor."""
    names = [name.split(":") for name in EXTRACTORS.values()]
    assert {function for _, function in names} == {"extract"}
    modules = {module for module, _ in names}
    assert len(modules) == len(EXTRACTORS)
    assert all(module.startswith("content.extractors.") for module in modules)


def test_a_rendition_is_bounded(repeating: str) -> None:
    """A text of up to 8 MiB is returned, in UTF-8 and with its line ends; a longer one is not."""
    assert len(extract(repeating, b"1000").lines[0]) == 499
    extract(repeating, b"%d" % (8 << 20))
    with pytest.raises(LimitExceeded, match="8,388,608"):
        extract(repeating, b"%d" % ((8 << 20) + 2))


def test_the_registry_imports_no_format() -> None:
    """Detection and registry are imported by all processes, and no library comes with them."""
    program = "import sys, content.detection, content.registry; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    modules = set(run.stdout.split())
    assert "content.registry" in modules
    assert not {*LIBRARIES, "yaml"} & modules
    assert not {name.partition(":")[0] for name in EXTRACTORS.values()} & modules


def test_no_process_imports_a_format_when_it_starts() -> None:
    """A command, a worker and a parser start without the libraries of formats."""
    starts = "gateway.main, processors.worker, processors.chunking.sandbox.child"
    program = f"import sys, {starts}, processors.chunking.registry; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    modules = set(run.stdout.split())
    assert "processors.chunking.registry" in modules
    assert not LIBRARIES & modules


def test_a_parser_imports_nothing_of_a_worker() -> None:
    """A worker runs a parser for each core, and each takes the memory of its modules."""
    starts = "processors.chunking.sandbox.child, processors.chunking.registry"
    program = f"import sys, {starts}; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    modules = set(run.stdout.split())
    assert "processors.chunking.registry" in modules
    assert not {"asyncio", "asyncpg", "pydantic", "redis", "rich", "store", "structlog"} & modules
