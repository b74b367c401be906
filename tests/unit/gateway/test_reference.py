"""The generated documents are those of the code."""

from __future__ import annotations

import json

import pytest

from events.models import EVENT_TYPES
from events.spec.asyncapi import asyncapi_document, render
from gateway.app import openapi_document
from gateway.http.manual import http_reference
from gateway.main import COMMANDS
from gateway.reference import DOCS, render_openapi, renewed

PAGES = sorted((DOCS / "reference").glob("*.md"))


def page(name: str) -> str:
    return (DOCS / "reference" / name).read_text(encoding="utf-8")


def test_asyncapi_is_current() -> None:
    """`make docs` renews it."""
    assert (DOCS / "asyncapi.json").read_text(encoding="utf-8") == render()


def test_openapi_and_its_page_are_current() -> None:
    """`make docs` renews them."""
    assert (DOCS / "openapi.json").read_text(encoding="utf-8") == render_openapi()
    assert page("http.md") == http_reference(openapi_document())


@pytest.mark.parametrize("name", [path.name for path in PAGES])
def test_the_reference_is_current(name: str) -> None:
    """`make docs` renews it."""
    assert page(name) == renewed(page(name))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("settings.md", "| `2` |", "| `3` |"),
        ("commands.md", "--detach", "--attach"),
        ("errors.md", "`LogFull`", "`LogEmpty`"),
        ("events.md", "at most 512", "at most 5"),
        ("limits.md", "| 16 |", "| 17 |"),
        ("metrics.md", "| counter |", "| gauge |"),
    ],
)
def test_a_generated_part_that_differs_is_renewed(name: str, old: str, new: str) -> None:
    """A change by hand does not last."""
    changed = page(name).replace(old, new, 1)
    assert changed != page(name)
    assert renewed(changed) == page(name)


def test_the_page_of_events_has_every_table() -> None:
    assert page("events.md").count("<!-- fields: ") == 17
    assert page("events.md").count("| field | type |") == 17


def test_the_values_of_an_enum_follow_each_table_that_names_it() -> None:
    """Three tables have a field of the type ``Kind``."""
    assert page("events.md").count("\nKind: `code`, `markdown`, ") == 3


def test_the_page_of_commands_has_every_command() -> None:
    assert all(f"\n## headrace {name}\n" in page("commands.md") for name in COMMANDS)


def test_asyncapi_names_every_event_and_refers_to_nothing_that_is_missing() -> None:
    document = asyncapi_document()
    text = json.dumps(document)

    assert {message["name"] for message in document["components"]["messages"].values()} == set(
        EVENT_TYPES
    )
    for part in text.split('"$ref": "#/')[1:]:
        target = document
        for step in part.split('"')[0].split("/"):
            target = target[step]
