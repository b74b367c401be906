"""Isolation of projects in search, for random questions and filters."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import asyncpg
import numpy as np
import pytest

from events.models import Filters, Kind
from store.search.search import Search
from store.store import Store
from store.types import SearchRequest
from tests.support.databases import Database
from tests.support.writes import MODEL, RECIPE, document_write, opened, vector_of

PROBES = 200
PROJECTS = ("alpha", "beta")
AGENTS = (None, "ada", "bob")
TEXTS = [f"common words about topic{number} and the mill" for number in range(12)]


@pytest.fixture
async def search(database: Database) -> AsyncIterator[Search]:
    """Two projects with equal uris, kinds, collections and metadata, shared and private."""
    async with opened(database.worker_url) as worker:
        store = Store(worker, RECIPE)
        position = 0
        for project in PROJECTS:
            for number, text in enumerate(TEXTS):
                for agent in AGENTS:
                    position += 2
                    owned = f"{text} of {project} for {agent}"
                    await store.apply(
                        [
                            document_write(
                                f"docs/{number}.md",
                                position,
                                [owned],
                                project=project,
                                agent=agent,
                                kind="markdown" if number % 2 else "text",
                                collections=("common",),
                                metadata={"number": number % 3, "team": "mill"},
                            )
                        ]
                    )
        yield Search(worker)


def _filters(rng: random.Random) -> Filters:
    return Filters(
        kinds=tuple(rng.sample([Kind.MARKDOWN, Kind.TEXT, Kind.CODE], rng.randrange(3))),
        collections=rng.choice([(), ("common",), ("none",)]),
        uri_prefix=rng.choice([None, "", "docs/", "docs/1", "%", "docs/_", "' OR true --"]),
        metadata=rng.choice(
            [{}, {"team": "mill"}, {"number": 1}, {"team' OR '1'='1": "x"}, {"team": "%"}]
        ),
    )


def _request(rng: random.Random, project: str, agent: str | None) -> SearchRequest:
    foreign = rng.choice([one for one in PROJECTS if one != project])
    text = f"{rng.choice(TEXTS)} of {foreign} for {rng.choice(AGENTS)}"
    legs = rng.choice(["both", "vector", "keyword"])
    return SearchRequest(
        project=project,
        agent=agent,
        text=None if legs == "vector" else text,
        vectors={} if legs == "keyword" else {MODEL: vector_of(text).astype(np.float32)},
        filters=_filters(rng),
        candidates=rng.choice([1, 10, 100]),
    )


async def test_no_probe_finds_a_foreign_document(search: Search, database: Database) -> None:
    """Questions with the other project's words find only documents that the asker may read."""
    rng = random.Random(4)
    owner = await asyncpg.connect(database.owner_url)
    everything = [row["id"] for row in await owner.fetch("SELECT id FROM chunks")]
    await owner.close()
    found = 0
    for _ in range(PROBES):
        project, agent = rng.choice(PROJECTS), rng.choice(AGENTS)
        generation = await search.live(project)
        candidates = await search.candidates(generation, _request(rng, project, agent))
        legs = [candidates.keyword, *candidates.vector.values()]
        ids = [chunk_id for leg in legs for chunk_id, _ in leg]
        rows = await search.rows(generation, agent, [*ids, *rng.sample(everything, 20)])
        visible = {f"of {project} for {owner}" for owner in {None, agent}}
        assert all(row.content.endswith(tuple(visible)) for row in rows.values())
        assert set(ids) <= set(rows), "a retriever returned a chunk that its asker may not read"
        found += len(ids)
    assert found > PROBES, "the probes must find their own documents, or they prove nothing"
