"""Ledger of costs: embeddings by a remote model, and both purposes by day and project."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from events.names import Lane
from store.documents.costs import Usage, add
from store.generations.catalog import Projects
from store.postgres.pool import Database as WorkerDatabase
from tests.support.contexts import costs, document
from tests.support.databases import Database
from tests.support.model_server import ModelServer, running_server
from tests.support.running import headrace
from tests.support.writes import RECIPE

PRICED = "openai/text-embedding-3-small"
UNPRICED = "openai/test-model"


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with running_server() as running:
        yield running


@pytest.mark.parametrize("model", [PRICED, UNPRICED])
async def test_embeddings_are_entered_by_change(
    redis_url: str, database: Database, worker: WorkerDatabase, server: ModelServer, model: str
) -> None:
    """Live and bulk changes are entered with their tokens; an unknown price is not zero."""
    remote = {"model_api_key": server.key, "model_base_url": server.base_url}
    async with headrace(redis_url, database, model=model, **remote) as running:
        await running.change("a.md", document())
        for uri in ("b.md", "c.md"):  # one text, because the title is in the header
            carp = document({"carp": "It swims."})
            await running.change(uri, carp, lane=Lane.BULK, title="Fish")
    texts = sum(len(request) for request in server.requests if request != ["width"])
    [cost] = await costs(worker)
    assert (cost.project, cost.model, cost.purpose, cost.changes) == ("docs", model, "embedding", 2)
    assert (cost.tokens_in, cost.tokens_cached, cost.tokens_out) == (3 * texts, 0, 0)
    if model == UNPRICED:
        assert cost.cost_usd is None
    else:
        assert cost.cost_usd == pytest.approx(3 * texts * 2e-8)


async def test_costs_of_a_change_are_added_and_a_sum_can_be_unknown(
    worker: WorkerDatabase,
) -> None:
    project_id = await Projects(worker, RECIPE).ensure("docs")
    usage = Usage(1, 10, 2, 3, 0.5)
    async with worker.scope(project_id) as connection:
        await add(connection, project_id, "m", "context", {"live:0:1-0": usage})
        await add(connection, project_id, "m", "context", {"live:0:1-0": usage})
    [cost] = await costs(worker)
    assert (cost.requests, cost.tokens_in, cost.tokens_cached, cost.tokens_out) == (2, 20, 4, 6)
    assert (cost.changes, cost.cost_usd) == (1, 1.0)
    async with worker.scope(project_id) as connection:
        await add(connection, project_id, "m", "context", {"live:0:2-0": Usage(1, cost_usd=None)})
    [cost] = await costs(worker)
    assert (cost.changes, cost.cost_usd) == (2, None)
