"""The names that publishers and askers import, and the methods of both clients."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

import headrace

ROOT = Path(__file__).parents[3]
FUNDAMENTALS = sorted((ROOT / "tests" / "fundamentals").glob("*.py"))
PUBLIC = """
    BlockingClient Citation Client DocumentChange DocumentChanged DocumentEmbedded DocumentIndexed
    DocumentRejected Filters HeadraceError Kind Lane Outcome QueryAnswer QueryRefused Receipt
    SearchResult Unavailable UsageError Weights
"""
METHODS = """
    ask close connect delete judge keep_content outcomes publish publish_many rename upsert wait
"""
NOT_FOR_CLIENTS = ("aiohttp", "asyncpg", "faust", "litellm", "numpy", "structlog", "typer")


def methods(client: type) -> dict[str, Callable[..., Any]]:
    return {
        name: method
        for name, method in inspect.getmembers(client, inspect.isroutine)
        if not name.startswith("_")
    }


def modules_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Names of the imported modules."""
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [name.name for name in node.names]


def parameters(method: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters with their resolved annotations, without ``self``."""
    signature = inspect.signature(method, eval_str=True)
    return [value for name, value in signature.parameters.items() if name != "self"]


def test_the_public_names_are_these() -> None:
    assert set(headrace.__all__) == set(PUBLIC.split())
    assert len(headrace.__all__) <= 20
    assert all(hasattr(headrace, name) for name in headrace.__all__)


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    """Names, kinds, defaults and annotations are equal, so code differs only by ``await``."""
    waiting, blocking = methods(headrace.Client), methods(headrace.BlockingClient)
    assert waiting.keys() == blocking.keys() == set(METHODS.split())
    for name, method in waiting.items():
        assert parameters(blocking[name]) == parameters(method), name


def test_both_clients_return_the_same() -> None:
    """Return types are equal, except clients and iterators, which are asynchronous in one."""
    blocking = methods(headrace.BlockingClient)
    for name, method in methods(headrace.Client).items():
        returned = inspect.signature(method).return_annotation
        expected = returned.removeprefix("Async")
        assert inspect.signature(blocking[name]).return_annotation == expected, name


def test_every_parameter_has_a_type() -> None:
    for client in (headrace.Client, headrace.BlockingClient):
        for name, method in methods(client).items():
            for parameter in parameters(method):
                assert parameter.annotation not in (parameter.empty, Any), (name, parameter)


def test_the_clients_import_nothing_of_the_workers() -> None:
    """The clients load no package of the workers, so that a short program starts quickly."""
    program = f"import sys, headrace; print(*(set(sys.modules) & set({NOT_FOR_CLIENTS})))"
    command = [sys.executable, "-c", program]
    imported = run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    assert imported.stdout.split() == []


@pytest.mark.parametrize("file", FUNDAMENTALS, ids=lambda file: file.stem)
def test_the_fundamentals_use_the_public_package_only(file: Path) -> None:
    """The fundamental tests import the public package only, as a program would."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {module for node in imports for module in modules_of(node)}
    outside = {name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names}
    ours = {name for name in outside if not name.startswith("tests.support.")}
    assert "headrace" in modules or file.stem == "conftest"
    assert ours <= {"headrace", "pytest"}
