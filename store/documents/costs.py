"""Ledger of the requests to remote models: tokens and costs by project, day, model and change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import asyncpg

from store.postgres.named_queries import named
from store.postgres.pool import Database

__all__ = [
    "Costs",
    "DailyCost",
    "Purpose",
    "RerankCosts",
    "Usage",
    "add",
    "divide_usage",
]

_QUERIES = named("costs")

Purpose = Literal["context", "embedding", "rerank"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Requests to a remote model, their tokens, and their cost.

    ``tokens_cached`` are the input tokens that the provider had cached; ``tokens_in`` are the
    others. ``cost_usd`` is None if a price is not known.
    """

    requests: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    cost_usd: float | None = 0.0

    def __add__(self, other: Usage) -> Usage:
        """Usage of both; its cost is unknown if one of theirs is."""
        priced = self.cost_usd is not None and other.cost_usd is not None
        return Usage(
            self.requests + other.requests,
            self.tokens_in + other.tokens_in,
            self.tokens_cached + other.tokens_cached,
            self.tokens_out + other.tokens_out,
            (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if priced else None,
        )


def divide_usage(usage: Usage, lengths: Mapping[str, int]) -> dict[str, Usage]:
    """Divide the usage of one call among the tokens of changes, by length of their texts.

    The parts add up to the whole. The first change is given the number of requests.
    """
    total = sum(lengths.values()) or 1
    parts: dict[str, Usage] = {}
    done = spent_in = spent_cached = 0
    for token, length in lengths.items():
        done += length
        tokens_in = round(usage.tokens_in * done / total) - spent_in
        tokens_cached = round(usage.tokens_cached * done / total) - spent_cached
        spent_in, spent_cached = spent_in + tokens_in, spent_cached + tokens_cached
        parts[token] = Usage(
            0 if parts else usage.requests,
            tokens_in,
            tokens_cached,
            0 if parts else usage.tokens_out,
            None if usage.cost_usd is None else usage.cost_usd * length / total,
        )
    return parts


async def add(
    connection: asyncpg.Connection,
    project_id: int,
    model: str,
    purpose: Purpose,
    usages: Mapping[str, Usage],
) -> None:
    """Add usages of today (UTC), by the token of the change that they were for."""
    rows = [
        (
            token,
            usage.requests,
            usage.tokens_in,
            usage.tokens_cached,
            usage.tokens_out,
            usage.cost_usd,
        )
        for token, usage in usages.items()
    ]
    columns = [list(column) for column in zip(*rows, strict=True)]
    await connection.execute(_QUERIES["add_costs"], project_id, model, purpose, *columns)


@dataclass(frozen=True, slots=True)
class DailyCost:
    """Requests of one project to one model on one day (UTC), for one purpose.

    ``changes`` is the number of changes that caused them, 0 for reranking. ``cost_usd`` is None if
    the price of a request is not known.
    """

    project: str
    day: date
    model: str
    purpose: Purpose
    changes: int
    requests: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    cost_usd: float | None

    def as_json(self) -> dict[str, Any]:
        """Plain values; the day in ISO 8601, the cost in US dollars with nine decimals."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        cost_usd = None if self.cost_usd is None else round(self.cost_usd, 9)
        return fields | {"day": self.day.isoformat(), "cost_usd": cost_usd}


class RerankCosts:
    """Writes the costs of reranking, which also a process that only answers may do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, project_id: int, model: str, usage: Usage) -> None:
        """Add requests of today (UTC), without the questions that they were for.

        Raises:
            Unavailable: Postgres cannot be reached.
        """
        async with self._database.scope(project_id) as connection:
            await connection.execute(
                _QUERIES["add_rerank_costs"],
                project_id,
                model,
                usage.requests,
                usage.tokens_in,
                usage.cost_usd,
            )


class Costs:
    """Reads the ledger; every method raises ``Unavailable`` if Postgres cannot be reached."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_contexts_today(self) -> float:
        """Known cost in US dollars of today's contexts, of all projects together."""
        async with self._database.connection() as connection:
            return float(await connection.fetchval(_QUERIES["context_costs_of_today"]))

    async def daily(self, projects: Mapping[str, int], days: int) -> list[DailyCost]:
        """Costs of projects (id by name) in the last ``days`` days, newest first in each."""
        costs: list[DailyCost] = []
        for project, project_id in sorted(projects.items()):
            async with self._database.scope(project_id) as connection:
                rows = await connection.fetch(_QUERIES["daily_costs"], project_id, days)
            costs += [DailyCost(project, **row) for row in rows]
        return costs
