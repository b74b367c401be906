"""Code examples of documents, from publisher to answer, with a real worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from events.models import DocumentIndexed, DocumentIndexedData, Filters, Kind, SearchResult
from processors.replay.start import live_generation
from runtime.errors import UsageError
from store.generations.catalog import Recipe
from store.store import Store
from store.views.listing import Listing
from tests.support.databases import Database
from tests.support.replays import HASHING, replay, rows, tools
from tests.support.running import Headrace, headrace
from tests.support.writes import opened

EXAMPLES = Filters(kinds=(Kind.CODE_EXAMPLE,))
GUIDE = """# Sluices

Gates are old and heavy.

## Opening

Open the sluice by its wheel:

```python
gate = Gate("north")
gate.unlock()
gate.turn(wheel=3)
```

The water rises. Then wait.

## Closing

Nothing else turns it back.
"""


@pytest.fixture
async def running(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    async with headrace(redis_url, database) as started:
        yield started


async def published(
    running: Headrace, uri: str, content: str | None, **data: Any
) -> DocumentIndexedData:
    outcome = await running.change(uri, content, **data)
    assert isinstance(outcome, DocumentIndexed)
    return outcome.data


async def examples_for(
    running: Headrace, question: str, agent: str | None = None
) -> list[SearchResult]:
    """Code examples that answer a question."""
    answer = await running.client.ask("docs", question, filters=EXAMPLES, agent=agent)
    return [*answer.results]


async def test_an_example_is_a_result_of_its_own(running: Headrace) -> None:
    """A fence is a result as an example with its lines, and text is found without it."""
    data = await published(running, "guide.md", GUIDE)
    assert data.code_examples == 1
    [example] = await examples_for(running, "how do I open the north gate?")
    assert (example.kind, example.language) == (Kind.CODE_EXAMPLE, "python")
    assert example.content.splitlines()[1] == "gate.unlock()"
    assert (example.citation.start_line, example.citation.end_line) == (10, 12)
    assert example.citation.heading_path == ("Sluices", "Opening")
    text = await running.client.ask("docs", "how do I open the north gate?", limit=50)
    assert {result.kind for result in text.results} == {Kind.MARKDOWN}
    assert text.searched_chunks == data.chunks_added - 1


async def test_edits_embed_only_what_they_change(running: Headrace) -> None:
    """Edits elsewhere and a move keep an example; an edit of its code, or a delete, does not."""
    await published(running, "old/docs/guide.md", GUIDE)
    [before] = await examples_for(running, "unlock the gate")
    query = "select count(*) from vector_cache"
    [(vectors,)] = await rows(running.database, "docs", query + " where $1::int > 0")
    edited = GUIDE.replace("old and heavy", "new and light").replace("## Closing", "\n\n## Closing")
    data = await published(running, "old/docs/guide.md", edited)
    assert data.code_examples == 1
    [(vectors_after,)] = await rows(running.database, "docs", query + " where $1::int > 0")
    assert vectors_after - vectors == data.chunks_added
    [kept] = await examples_for(running, "unlock the gate")
    assert kept.chunk_id == before.chunk_id
    moved = await published(
        running, "new/docs/guide.md", edited, change="rename", old_uri="old/docs/guide.md"
    )
    assert (moved.code_examples, moved.chunks_embedded) == (1, 0)
    [renamed] = await examples_for(running, "unlock the gate")
    assert renamed.citation.uri == "new/docs/guide.md"
    await published(running, "new/docs/guide.md", edited.replace("wheel=3", "wheel=4"))
    [changed] = await examples_for(running, "unlock the gate")
    assert changed.content.endswith("gate.turn(wheel=4)")
    await published(running, "new/docs/guide.md", None, change="delete")
    assert await examples_for(running, "unlock the gate") == []


async def test_a_replay_makes_the_same_examples(running: Headrace) -> None:
    """A second generation, verified by its digests, has the same examples; counts name them."""
    query = """select d.uri, c.content, c.is_example, c.language, c.surroundings, c.start_line
        from chunks c join documents d on d.generation_id = c.generation_id and d.id = c.document_id
        where c.generation_id = $1 order by d.uri, c.ordinal"""
    await published(running, "guide.md", GUIDE)
    await published(running, "secret.md", GUIDE.replace("north", "south"), agent="ada")
    before = await rows(running.database, "docs", query)
    assert sum(row["is_example"] for row in before) == 2
    async with tools(running.redis_url, running.database) as replaying:
        assert (await replay(replaying)).switched
        assert await rows(running.database, "docs", query) == before
        assert (await replay(replaying, kind="html")).switched, "documents of Markdown are copied"
        assert await rows(running.database, "docs", query) == before
        listing = Listing(replaying.database)
        project = await listing.project("docs", None)
        document = await listing.document("docs", None, "guide.md")
        chunks = await listing.chunks("docs", None, "guide.md")
        lines = await listing.lines("docs", None, "guide.md")
    assert (project.examples, document.examples) == (1, 1)
    assert [chunk.is_example for chunk in chunks] == [False] * (document.chunks - 1) + [True]
    assert (lines.text + lines.ending, lines.exact) == (GUIDE, True)
    assert [row.citation.uri for row in await examples_for(running, "by its wheel")] == ["guide.md"]
    words = await running.client.ask("docs", "rises", filters=EXAMPLES, mode="keyword")
    assert len(words.results) == 1, "the text around an example is copied too"
    own = await examples_for(running, "turn the wheel", agent="ada")
    assert {row.citation.uri for row in own} == {"guide.md", "secret.md"}


async def test_an_index_of_version_1_has_no_examples_until_it_is_replayed(
    running: Headrace,
) -> None:
    """Documents of one generation are cut alike: examples begin with a replay by version 2."""
    async with opened(running.database.operator_url) as database:
        await Store(database, Recipe(HASHING, chunking="1")).generation("docs")
    assert (await published(running, "guide.md", GUIDE)).code_examples == 0
    assert await examples_for(running, "unlock the gate") == []
    async with tools(running.redis_url, running.database) as replaying:
        assert (await replay(replaying)).switched
        assert (await live_generation(replaying, "docs")).recipe.chunking == "1"
        assert (await replay(replaying, chunking="2")).switched
    [example] = await examples_for(running, "unlock the gate")
    assert example.citation.uri == "guide.md"


async def test_examples_are_not_replayed_alone(running: Headrace) -> None:
    """Examples are a part of documents of other kinds, so a replay refuses them as a kind."""
    await published(running, "guide.md", GUIDE)
    async with tools(running.redis_url, running.database) as replaying:
        with pytest.raises(UsageError, match="code examples are rebuilt with their documents"):
            await replay(replaying, kind="code_example")
