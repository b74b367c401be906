"""Routes of operators over a real deployment."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI

from events.names import Names
from gateway.auth.callers import Caller, Right
from gateway.http.operations import operation_routes
from gateway.operations import Operations
from runtime.errors import Conflict, Forbidden, UnknownProject
from runtime.settings import Settings
from tests.support.databases import Database
from tests.support.running import Headrace, headrace

OPERATOR = Caller("k", None, None, frozenset({Right.OPERATE}))
READER = Caller("k", None, None, frozenset({Right.READ}))
OF_ONE_PROJECT = Caller("k", "docs", None, frozenset({Right.OPERATE}))


@pytest.fixture
async def worker(redis_url: str, database: Database) -> AsyncIterator[Headrace]:
    """Worker that has indexed a document."""
    async with headrace(redis_url, database) as running:
        await running.change("heron.md", "Herons nest in March.")
        yield running


@pytest.fixture
async def operations(
    worker: Headrace, database: Database, tmp_path: Path
) -> AsyncIterator[Operations]:
    """Operations on the deployment of the worker."""
    settings = Settings(
        redis_url=worker.redis_url, database_url=database.operator_url, home=tmp_path
    )
    async with Operations.open(settings, Names()) as opened:
        yield opened


def client(operations: Operations, caller: Caller) -> httpx2.AsyncClient:
    """Client of an application with the routes, which lets errors pass."""

    async def authenticated() -> Caller:
        return caller

    app = FastAPI()
    app.include_router(operation_routes(operations, authenticated))
    transport = httpx2.ASGITransport(app=app)
    return httpx2.AsyncClient(transport=transport, base_url="http://gateway")


async def test_an_operator_reads_and_changes(operations: Operations) -> None:
    """Every list is there, and unknown fields are refused."""
    async with client(operations, OPERATOR) as http:
        assert (await http.get("/v1/status")).json()["projects"][0]["project"] == "docs"
        [generation] = (await http.get("/v1/projects/docs/generations")).json()["items"]
        assert (generation["state"], generation["documents"]) == ("live", 1)
        assert (await http.get("/v1/dead-letters")).json() == {"items": [], "next": None}
        assert (await http.get("/v1/dead-letters/counts")).json() == {"items": []}
        assert (await http.get("/v1/projects/docs/evaluations")).json() == {"items": []}
        assert (await http.get("/v1/replays")).json() == {"items": []}
        assert len((await http.get("/v1/history?minutes=3")).json()["items"]) == 3
        choice = {"filter": {"project": "docs"}, "count": 0}
        assert (await http.post("/v1/dead-letters:redrive", json=choice)).json() == {"items": []}
        with pytest.raises(Conflict):
            await http.post("/v1/dead-letters:drop", json=choice | {"count": 1})
        refused = await http.post("/v1/projects/docs/replays", json={"modle": "local/x"})
        assert refused.status_code == 422
        with pytest.raises(UnknownProject):
            await http.post("/v1/projects/nothing/replays")


async def test_what_postgres_cannot_hold_is_refused(operations: Operations) -> None:
    async with client(operations, OPERATOR) as http:
        for field in ("model", "since", "collection"):
            refused = await http.post("/v1/projects/docs/replays", json={field: "a\0"})
            assert refused.status_code == 422, field
        generation = f"/v1/projects/docs/generation/{10**20}"
        assert (await http.post(f"{generation}:switch")).status_code == 422
        assert (await http.delete(generation)).status_code == 422


@pytest.mark.parametrize("caller", [READER, OF_ONE_PROJECT])
async def test_others_may_not_operate(operations: Operations, caller: Caller) -> None:
    """The right is needed, and a key that is of no project."""
    async with client(operations, caller) as http:
        for path in ("/v1/status", "/v1/dead-letters", "/v1/projects/docs/generations"):
            with pytest.raises(Forbidden):
                await http.get(path)
