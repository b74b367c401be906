"""Documents with contexts, and the contexts that are stored."""

from __future__ import annotations

from typing import Any

from bench.content.language_model import LanguageModel
from store.documents.costs import Costs, DailyCost
from store.generations.catalog import Projects
from store.postgres.pool import EVERY_AGENT
from store.postgres.pool import Database as WorkerDatabase
from store.store import Store
from store.views import statistics
from store.views.statistics import ProjectStatistics
from tests.support.databases import Database
from tests.support.replays import rows
from tests.support.waiting import eventually
from tests.support.writes import RECIPE

__all__ = [
    "MODEL",
    "SECTIONS",
    "contexts",
    "costs",
    "counts",
    "document",
    "settings_of",
    "settled",
]

MODEL = "openai/gpt-4o-mini"
SECTIONS = {name: f"The {name} nests near the river." for name in ("heron", "grebe", "stork")}


def settings_of(model: LanguageModel, /, **context: Any) -> dict[str, Any]:
    """Settings with the scripted language model for the contexts of new projects."""
    values = {"model": MODEL, "base_url": model.base_url, **context}
    return {"context": values, "model_requests": {"failures": 3, "retries": 0}}


def document(sections: dict[str, str] = SECTIONS) -> str:
    """Markdown with one chunk for each section."""
    filling = "It is seen in the morning. " * 24
    return "\n\n".join(f"# {name}\n\n{text} {filling}" for name, text in sections.items()) + "\n"


async def counts(worker: WorkerDatabase) -> ProjectStatistics:
    """Counts of the live generation of the project ``docs``."""
    live = await Store(worker, RECIPE).live("docs")
    assert live is not None
    async with worker.scope(live.project_id, EVERY_AGENT) as connection:
        return await statistics.measure(connection, live.project_id, "docs")


async def settled(worker: WorkerDatabase) -> None:
    """Wait until no chunk waits for its context."""

    async def nothing_waits() -> bool:
        return (await counts(worker)).contexts_waiting == 0

    await eventually(nothing_waits, "every chunk has its context")


async def contexts(database: Database) -> dict[str, str | None]:
    """Context by text of the chunk."""
    query = (
        "select c.content, x.context from chunk_contexts x join chunks c"
        " on c.generation_id = x.generation_id and c.id = x.chunk_id where x.generation_id = $1"
    )
    return {row["content"]: row["context"] for row in await rows(database, "docs", query)}


async def costs(worker: WorkerDatabase) -> list[DailyCost]:
    """Costs of all projects."""
    return await Costs(worker).daily(await Projects(worker).all(), 2)
