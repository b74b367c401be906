"""Pages without a script that describe the routes and the problems, and their text for docs/."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse

from gateway.http.openapi import operations
from gateway.http.problems import ProblemKind, problem_kinds
from runtime.errors import NotFound

__all__ = ["http_reference", "router"]

_TEMPLATES = Path(__file__).parent / "templates"

router = APIRouter(include_in_schema=False)


@router.get("/docs", response_class=HTMLResponse)
async def show_routes(request: Request) -> HTMLResponse:
    """Describe every route."""
    return _page("docs.html", operations=list(operations(request.app.openapi())))


@router.get("/problems", response_class=HTMLResponse)
async def list_problems() -> HTMLResponse:
    """List the problems by code."""
    return _page("problems.html", kinds=problem_kinds())


@router.get("/problems/{code}", response_class=HTMLResponse)
async def show_problem(code: str) -> HTMLResponse:
    """Describe one kind of problem."""
    for kind in problem_kinds():
        if kind.code == code:
            return _page("problem.html", kind=kind)
    raise NotFound(f"there is no error {code[:80]!r}", "/problems lists all")


def _page(template: str, **values: Any) -> HTMLResponse:
    return HTMLResponse(_environment().get_template(template).render(values))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined
    )


def http_reference(document: Mapping[str, Any]) -> str:
    """Write the page of docs/reference/ about the routes of an OpenAPI document."""
    return "\n".join([*_introduction(), *_routes(document), *_problems(problem_kinds())]) + "\n"


def _introduction() -> Iterator[str]:
    yield "# HTTP"
    yield ""
    yield "This page is generated from the application, as is [openapi.json](../openapi.json). A"
    yield "gateway serves both, at `/docs` and `/openapi.json`. Send the API key as"
    yield "`Authorization: Bearer hr_…`. [Limits](limits.md) apply."


def _routes(document: Mapping[str, Any]) -> Iterator[str]:
    for operation in operations(document):
        yield f"\n## {operation.name}\n"
        yield operation.description["description"]
        yield ""
        yield f"Right: `{operation.right}`." if operation.right else "No API key is needed."
        if operation.parameters:
            yield "\n| parameter | in | type |\n|---|---|---|"
        for row in operation.parameter_rows:
            required = " (required)" if row.required else ""
            yield f"| `{row.name}`{required} | {row.place} | {row.kind} |"
        yield f"\n```text\n{operation.curl}\n```\n"
        yield f"Statuses: {', '.join(operation.statuses)}."


def _problems(kinds: list[ProblemKind]) -> Iterator[str]:
    yield "\n## Problems\n"
    yield "| code | status | meaning |\n|---|---|---|"
    for kind in kinds:
        yield f"| `{kind.code}` | {kind.status} | {kind.title} |"
