"""Injections: texts that break out of quotes, patterns, formats and markup, in every text field."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from events.models import (
    DocumentChange,
    DocumentChanged,
    DocumentIndexed,
    Filters,
    Query,
    SearchResult,
)
from events.names import Lane, Names
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.errors import UsageError
from runtime.terminal import printable
from store.generations.catalog import Projects, Recipe
from store.search.search import Search
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.hostile_values import INJECTIONS
from tests.support.running import PATIENCE, Headrace, headrace
from tests.support.tally import Record
from tests.support.writes import opened

PROJECT = "docs"
HARMLESS = re.compile(r"[A-Za-z0-9._@:/{} -]+")
TEMPLATE = "https://example.org/{commit}/{path}#{start}-{end}?"
LONG = [f"{text} " * (100 // len(text) + 1) for text in INJECTIONS]


def change_with(text: str, number: int) -> DocumentChange:
    """Change with the text in every text field."""
    return DocumentChange(
        project=PROJECT,
        uri=f"{text}{number}",
        content=f"The mill of number{number}:\n{text}\n",
        title=text,
        collections=(f"c{number}",),
        permalink_template=TEMPLATE + text,
        metadata={text: text, "number": number, f"key {text}": f"value {text}"},
        kind=None,
        media_type="text/plain",
    )


async def test_each_is_stored_as_it_is_and_found_as_it_is(
    redis_url: str, database: Database, tmp_path: Path, record: Record
) -> None:
    """Injections are stored unchanged and work as filters and as questions."""
    changes = [change_with(text, number) for number, text in enumerate(INJECTIONS)]
    async with headrace(redis_url, database, model=HASHING_MODEL) as running:
        events = [DocumentChanged(data=change) for change in changes]
        receipts = await running.client.publish_many(events, Lane.BULK)
        outcomes = await running.client.wait(receipts, PATIENCE)
        assert all(isinstance(one, DocumentIndexed) for one in outcomes.values())
        await running.client.wait(receipts, PATIENCE, vectors=True)
        for number, text in enumerate(INJECTIONS):
            await found_by_every_filter(running, text, changes[number], changes)
        cli = Cli(environment_of(redis_url, database, tmp_path / "home"))
        ask = ("ask", "mill", "-p", PROJECT, "--limit", "100", "--explain")
        for shown in await asyncio.gather(cli(*ask), cli(*ask, "--json")):
            assert shown.code == 0
            assert shown.stdout == printable(shown.stdout), "a terminal would obey it"
    record("injections into fields and filters", Counter({"as they are": 10 * len(INJECTIONS)}))


async def found_by_every_filter(
    running: Headrace, text: str, change: DocumentChange, everything: list[DocumentChange]
) -> None:
    [result] = await asked(running, text, metadata={text: text})
    assert result.citation.uri == change.uri
    assert result.title == change.title
    assert result.metadata == change.metadata
    assert text in result.content or text.strip() in result.content.replace("\n", text)
    assert result.citation.permalink is not None
    assert result.citation.permalink.endswith(filled_in(text, result))
    [result] = await asked(running, "mill", metadata={f"key {text}": f"value {text}"})
    assert result.citation.uri == change.uri
    [result] = await asked(
        running, "mill", uri_prefix=change.uri, metadata={"number": change.metadata["number"]}
    )
    assert result.citation.uri == change.uri
    uris = {one.uri for one in everything if one.uri.startswith(text)}
    assert {one.citation.uri for one in await asked(running, "mill", uri_prefix=text)} == uris
    assert not await asked(running, "mill", metadata={text: f"{text}?"})
    assert not await asked(running, "mill", metadata={f"{text}?": text})


async def asked(running: Headrace, question: str, **filters: Any) -> tuple[SearchResult, ...]:
    """Results of a question with filters, none of which may fail."""
    answer = await running.client.ask(
        PROJECT, question[:2000], filters=Filters(**filters), limit=100, explain=True
    )
    assert not answer.degraded
    return answer.results


def filled_in(text: str, result: SearchResult) -> str:
    """Expected end of the permalink; empty if the text has braces, which may be filled in."""
    return text if "{" not in text else ""


@pytest.mark.parametrize(
    "field", ["project", "agent", "collections", "media_type", "commit", "kind"]
)
def test_names_take_no_injection(field: str, record: Record) -> None:
    """A name with an injection is refused unless it consists of harmless characters."""
    found: Counter[str] = Counter()
    for text in (*INJECTIONS, *LONG):
        values: dict[str, Any] = {"project": PROJECT, "uri": "u", "content": "c"}
        try:
            DocumentChange(**values | {field: (text,) if field == "collections" else text})
        except ValidationError:
            found["refused"] += 1
        else:
            found["harmless"] += 1
            assert HARMLESS.fullmatch(text), text
    record(f"injections into {field}", found)


@pytest.mark.parametrize("field", ["project", "agent", "min_event", "reply_to", "mode"])
def test_questions_take_no_injection(field: str, record: Record) -> None:
    """A question's names are refused unless they consist of harmless characters."""
    found: Counter[str] = Counter()
    for text in (*INJECTIONS, *LONG):
        values = {"project": PROJECT, "text": "mill", "reply_to": Names().replies("me")}
        try:
            query = Query.model_validate(values | {field: text})
        except ValidationError:
            found["refused"] += 1
        else:
            found["harmless"] += 1
            assert HARMLESS.fullmatch(text), text
            assert field != "reply_to" or not Names().is_replies(query.reply_to, 0)
    record(f"injections into a question's {field}", found)


async def test_models_keep_their_names(database: Database, record: Record) -> None:
    """A model's name is stored unchanged, whatever characters it contains."""
    async with opened(database.worker_url) as worker:
        for number, text in enumerate(INJECTIONS):
            project = f"project-{number}"
            await Projects(worker, Recipe(text, {"code": text})).ensure(project)
            generation = await Search(worker).live(project)
            assert generation.recipe.model == text
            assert generation.recipe.models == {"code": text}
    record("injections into names of models", Counter({"as they are": len(INJECTIONS)}))


async def test_a_client_says_what_is_wrong(redis_url: str, database: Database) -> None:
    """The client refuses an invalid project with a printable error."""
    async with headrace(redis_url, database, only=["answerer"], model=HASHING_MODEL) as running:
        for text in INJECTIONS:
            with pytest.raises(UsageError) as caught:
                await running.client.ask(text + "'", "mill")
            assert str(caught.value).isprintable()
