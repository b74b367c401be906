"""Generated parts of the reference in docs/: ``python -m gateway.reference`` writes them.

It also writes the answers of ``gateway.mcp.handshake``.

A page of docs/reference/ is hand-written, except for the text between ``<!-- PART -->`` and
``<!-- end -->`` and for the numbers in the tables of limits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Any

import typer
import typer.main
from pydantic import BaseModel

from events import models
from events.spec.asyncapi import render
from events.spec.field_tables import field_table, field_type
from gateway.app import openapi_document
from gateway.http.manual import http_reference
from gateway.main import COMMANDS, application
from gateway.mcp import handshake
from gateway.mcp.recorder import render_answers
from runtime import errors, metrics
from runtime.errors import HeadraceError
from runtime.settings import Settings

__all__ = ["DOCS", "limit_from", "render_openapi", "renewed"]

DOCS = Path(__file__).parents[1] / "docs"
_NAMES = "fields|settings|errors|metrics|commands"
_PART = re.compile(rf"(<!-- ({_NAMES})(?:: (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)
_SOURCE = r"HEADRACE_[\w.]+|[\w.]+\.[A-Z_]+"
_LIMIT = re.compile(rf"^(\| .+? \| )[\d,]+( \| `({_SOURCE})` \| .+ \|)$", re.MULTILINE)
_WIDTH = 100


def renewed(page: str) -> str:
    """Return a page of the reference with its generated parts made again from the code."""
    page = _PART.sub(lambda part: f"{part[1]}{_part(part[2], part[3])}{part[4]}", page)
    return _LIMIT.sub(lambda row: f"{row[1]}{limit_from(row[3]):,}{row[2]}", page)


def render_openapi() -> str:
    """Write the OpenAPI document as the text of its file."""
    return json.dumps(openapi_document(), indent=2, ensure_ascii=False) + "\n"


def limit_from(source: str) -> int:
    """Return the value of a limit; durations are in seconds.

    ``source`` is a constant with its module, a setting, or a setting and a key of its mapping.
    """
    if source.startswith("HEADRACE_"):
        setting, _, key = source.removeprefix("HEADRACE_").partition(".")
        value = Settings.model_fields[setting.lower()].default
        value = getattr(value, key) if key else value
    else:
        module, _, constant = source.rpartition(".")
        value = getattr(import_module(module), constant)
    return int(value.total_seconds() if isinstance(value, timedelta) else value)


def _part(name: str, argument: str | None) -> str:
    match name:
        case "fields":
            lines = field_table(getattr(models, str(argument)))
        case "settings":
            lines = _settings_table()
        case "errors":
            lines = _error_table(getattr(errors, str(argument)))
        case "metrics":
            lines = _metrics_table(metrics.Scope(str(argument)))
        case _:
            lines = _commands()
    return "\n".join(lines) + "\n"


def _settings_table() -> Iterator[str]:
    yield "| variable | type | default | meaning |"
    yield "|---|---|---|---|"
    schema = Settings.model_json_schema()["properties"]
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        kind, shown, meaning = field_type(schema[name]), _default(default), field.description
        if isinstance(default, BaseModel):
            values = {key: _default(value) for key, value in default}
            keys = ", ".join(
                f"`{key}`" + (value and f" ({value})") for key, value in values.items()
            )
            kind, shown = "map", ""
            meaning = f"{meaning} Keys: {keys}. E.g. {', '.join(field.examples or ())}."
        yield f"| `HEADRACE_{name.upper()}` | {kind} | {shown} | {meaning} |"


def _default(value: Any) -> str:
    if isinstance(value, timedelta):
        is_days = value >= timedelta(days=1)
        return f"{value.days} d" if is_days else f"{value.total_seconds():g} s"
    return f"`{value}`" if value and str(value) else ""


def _error_table(group: type[HeadraceError]) -> Iterator[str]:
    yield "| error | meaning |"
    yield "|---|---|"
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, group) and error is not group:
            meaning = " ".join((getdoc(error) or "").replace("``", "`").split())
            yield f"| `{error.__name__}` | {meaning} |"


def _metrics_table(scope: metrics.Scope) -> Iterator[str]:
    yield "| metric | type | labels | meaning |"
    yield "|---|---|---|---|"
    for name, (metric_scope, metric) in metrics.declared().items():
        if metric_scope is scope:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{name}` | {metric.kind} | {labels} | {metric.description} |"


def _commands() -> Iterator[str]:
    for name in COMMANDS:
        group: Any = typer.main.get_command(application([name]))
        command = group.commands[name]
        yield from _help(command, f"headrace {name}")
        for subcommand in getattr(command, "commands", {}).values():
            yield from _help(subcommand, f"headrace {name} {subcommand.name}")


def _help(command: Any, path: str) -> Iterator[str]:
    context = typer.Context(command, info_name=path, terminal_width=_WIDTH)
    yield f"\n## {path}\n\n```text\n{command.get_help(context)}\n```"


if __name__ == "__main__":
    for file in sorted((DOCS / "reference").glob("*.md")):
        file.write_text(renewed(file.read_text(encoding="utf-8")), encoding="utf-8")
    (DOCS / "asyncapi.json").write_text(render(), encoding="utf-8")
    (DOCS / "openapi.json").write_text(render_openapi(), encoding="utf-8")
    (DOCS / "reference" / "http.md").write_text(
        http_reference(openapi_document()), encoding="utf-8"
    )
    handshake.FILE.write_text(render_answers(), encoding="utf-8")
