"""Generated documents, compared with the models."""

from __future__ import annotations

import json
from pathlib import Path

from events.models import EVENT_TYPES
from events.spec.asyncapi import asyncapi_document, render
from events.spec.field_tables import renewed

DOCS = Path(__file__).parents[4] / "docs"


def test_asyncapi_is_current() -> None:
    """`python -m events.spec.asyncapi docs/asyncapi.json` updates it."""
    assert (DOCS / "asyncapi.json").read_text(encoding="utf-8") == render()


def test_the_tables_of_the_events_page_are_current() -> None:
    """`python -m events.spec.field_tables docs/events.md` updates them."""
    page = (DOCS / "events.md").read_text(encoding="utf-8")
    assert page == renewed(page)
    assert page.count("<!-- fields: ") == page.count("| field | type |") == 12


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
