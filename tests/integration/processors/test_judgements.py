"""Judgements of answers: which are kept, how often, how many, and what deletes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from redis.asyncio import Redis

from events.names import Names
from events.streams.answer_records import AnswerRecords
from events.streams.purge import PurgeTargets, StreamPurge
from runtime.errors import UsageError
from runtime.metrics import JUDGEMENTS, snapshot
from store.generations import judgements as stored
from store.generations.catalog import Projects
from store.generations.judgements import Judgements, StoredJudgement
from store.postgres.pool import Database
from store.postgres.roles import OPERATOR, WORKER
from store.purge.projects import DeletedProjects
from tests.support.databases import Database as Fresh
from tests.support.running import Headrace, headrace
from tests.support.waiting import eventually

NAMES = Names()
NOTES = {f"{name}.md": f"The {name} nests in reeds." for name in ("heron", "swan", "wagtail")}


@dataclass(frozen=True)
class Kept:
    """Judgements of the project ``docs``, once the worker has handled those that were sent."""

    headrace: Headrace
    database: Database
    judgements: Judgements
    project_id: int

    async def after(self) -> list[StoredJudgement]:
        """Judgements, after a further one of rank 99 shows that the earlier ones are handled."""
        answer = await self.headrace.client.ask("docs", "heron reeds")
        chunk_id = answer.results[0].chunk_id
        await self.headrace.client.judge("docs", answer.query_id, chunk_id, "shown", rank=99)

        async def handled() -> list[StoredJudgement]:
            rows = await self.judgements.of(self.project_id)
            return rows if rows and rows[-1].query_id == answer.query_id else []

        rows = await eventually(handled, "the judgements are handled")
        return [row for row in rows if row.rank != 99]


@pytest.fixture
async def kept(redis_url: str, database: Fresh) -> AsyncIterator[Kept]:
    opened = await Database.open(database.worker_url, role=WORKER)
    async with headrace(redis_url, database) as running:
        await running.changes(NOTES)
        project_id = await Projects(opened).require("docs")
        yield Kept(running, opened, Judgements(opened), project_id)
    await opened.close()


async def test_judgements_are_kept_with_their_question(kept: Kept) -> None:
    """Only the agent that asked can judge, and only what it got; an event id counts once."""
    client = kept.headrace.client
    before = JUDGEMENTS.values_in(snapshot())
    answer = await client.ask("docs", "when does the swan nest? kind:markdown", operators=True)
    private = await client.ask("docs", "heron", agent="ann", mode="keyword")
    second = answer.results[1]
    event_id = await client.judge("docs", answer.query_id, second.chunk_id, "used")
    await client.judge("docs", answer.query_id, second.chunk_id, "opened", event_id=event_id)
    await client.judge("docs", answer.query_id, answer.results[0].chunk_id, "shown", rank=3)
    chunk_id = private.results[0].chunk_id
    await client.judge("docs", private.query_id, chunk_id, "rejected", agent="ann")

    await client.judge("docs", private.query_id, chunk_id, "used", agent="bob")
    await client.judge("docs", private.query_id, chunk_id, "used")
    await client.judge("other", answer.query_id, second.chunk_id, "used")
    await client.judge("docs", answer.query_id, 2**62, "used")
    await client.judge("docs", "0" * 32, second.chunk_id, "used")
    exact = await client.ask("docs", "heron", mode="exact")
    await client.judge("docs", exact.query_id, exact.results[0].chunk_id, "used")

    used, shown, rejected = await kept.after()
    counts = {
        verdict: count - before.get(verdict, 0)
        for verdict, count in JUDGEMENTS.values_in(snapshot()).items()
    }
    assert counts == {"used": 1, "opened": 1, "shown": 2, "rejected": 1, "refused": 6}
    assert (used.verdict, used.rank, used.uri) == ("used", 2, second.citation.uri)
    assert (used.start_line, used.end_line) == (1, second.citation.end_line)
    assert (used.text.strip(), used.filters) == (
        "when does the swan nest?",
        {"kinds": ["markdown"]},
    )
    assert (used.agent, used.mode, used.query_id) == ("", "hybrid", answer.query_id)
    assert (shown.verdict, shown.rank) == ("shown", 3)
    assert (rejected.agent, rejected.verdict, rejected.mode) == ("ann", "rejected", "keyword")
    for wrong in ({"verdict": "liked"}, {"rank": 0}, {"event_id": ""}):
        with pytest.raises(UsageError, match="judgement: "):
            await client.judge(**{**judged(answer.query_id, chunk_id), **wrong})


def judged(query_id: str, chunk_id: int) -> dict[str, Any]:
    return {"project": "docs", "query_id": query_id, "chunk_id": chunk_id, "verdict": "used"}


async def test_judgements_are_bounded_and_go_with_their_documents(
    kept: Kept, redis_url: str, database: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest leave first; a purge and the deletion of the project remove rows and records."""
    client = kept.headrace.client
    monkeypatch.setattr(stored, "KEPT_JUDGEMENTS", 3)
    answer = await client.ask("docs", "reeds", mode="keyword")
    by_uri = {result.citation.uri: result.chunk_id for result in answer.results}
    for uri in NOTES:
        await client.judge("docs", answer.query_id, by_uri[uri], "used")
    assert [row.uri for row in await kept.after()] == list(NOTES)[1:]

    others = await kept.judgements.of(kept.project_id)
    async with kept.database.scope(kept.project_id + 1) as connection:
        assert await connection.fetchval("select count(*) from judgements") == 0
    assert await kept.judgements.drop(kept.project_id, ["absent.md"]) == 0
    assert await kept.judgements.drop(kept.project_id, ["swan.md"]) == 2, "all of its question"
    assert await kept.judgements.of(kept.project_id) == others[-1:]

    async with Redis.from_url(redis_url) as redis:
        records = AnswerRecords(redis, NAMES)
        [record] = await records.read([answer.query_id])
        assert record is not None
        assert record.text == "reeds"
        await StreamPurge(redis, NAMES).delete(PurgeTargets("other"))
        assert await records.read([answer.query_id]) == [record]
        await StreamPurge(redis, NAMES).delete(PurgeTargets("docs"))
        assert await records.read([answer.query_id]) == [None]
        assert await redis.exists(NAMES.replied(answer.query_id)), "it keeps its one reply"

    operator = await Database.open(database.operator_url, role=OPERATOR)
    async for _ in DeletedProjects(operator).drop_rows(kept.project_id):
        pass
    await operator.close()
    async with kept.database.scope(kept.project_id) as connection:
        assert await connection.fetchval("select count(*) from judgements") == 0
