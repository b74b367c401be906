"""Stage of the tests that disturb a replay."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count

import asyncpg

from bench.traffic import Traffic
from events.client.publisher import Receipt
from events.names import Lane, Names
from events.server.connection import connect
from processors.doctor.findings import Severity
from processors.embedders.local.tokenizer import TokenCounter
from tests.chaos.journal import Journal
from tests.chaos.replays import Replays
from tests.chaos.wholeness import assert_nothing_left_over, assert_whole, generations
from tests.support.doctors import doctor_at
from tests.support.indexes import assert_all_handled, assert_nothing_pending
from tests.support.replays import tools
from tests.support.running import Headrace
from tests.support.waiting import eventually, patience, slowness

__all__ = ["Stage"]

PATIENCE = timedelta(minutes=2)
MOST_SECONDS = 60.0
"""Longest time that a worker allows for a question."""


@dataclass
class Stage:
    """Worker on real servers, with a corpus, and `headrace replay` beside it."""

    running: Headrace
    replays: Replays
    count_tokens: TokenCounter

    async def fill(self, journal: Journal, changes: int) -> list[Receipt]:
        """Import ``changes`` changes and wait for them."""
        client = self.running.client
        receipts = await client.publish_many(journal.changes(changes), Lane.BULK)
        await client.wait(receipts, PATIENCE)
        return receipts

    def traffic(
        self, journal: Journal, changes_per_second: float, questions_per_second: float
    ) -> Traffic:
        """Traffic to the journal's project, not started yet, at rates that suit the machine."""
        return Traffic(
            self.running.client,
            journal.project,
            journal.changes(sys.maxsize),
            (f"word{number % 4_000} word{number * 7 % 4_000}" for number in count()),
            changes_per_second / slowness(),
            questions_per_second / slowness(),
            journal.kept,
            patience=timedelta(seconds=min(patience(10), MOST_SECONDS)),
        )

    @asynccontextmanager
    async def owner(self) -> AsyncIterator[asyncpg.Connection]:
        """Connection that sees all rows."""
        connection = await asyncpg.connect(self.running.database.owner_url)
        try:
            yield connection
        finally:
            await connection.close()

    async def generations(self, journal: Journal) -> dict[int, str]:
        """State by id, oldest first."""
        async with self.owner() as connection:
            return await generations(connection, journal.project)

    async def assert_settles_whole(
        self, journal: Journal, receipts: Sequence[Receipt], *findings: str
    ) -> None:
        """Assert that each published change is handled once and that the index equals the oracle.

        ``findings``: names of findings that the doctor may still report.
        """
        await self.running.client.wait(receipts, PATIENCE)
        await eventually(self._is_idle, "nothing is pending", timeout=20, every=0.1)
        async with self.owner() as owner:
            await assert_all_handled(owner, receipts)
            await assert_whole(owner, journal.project, journal.oracle, self.count_tokens)
            await assert_nothing_left_over(owner)
        assert await self._findings(journal) <= set(findings)

    async def _findings(self, journal: Journal) -> set[str]:
        """Names of the findings that the doctor reports."""
        running, home = self.running, self.replays.environment["HEADRACE_HOME"]
        async with tools(running.redis_url, running.database, home=home) as opened:
            [health] = await doctor_at(opened).examine([journal.project])
        return {one.name for one in health.remaining if one.severity is Severity.PROBLEM}

    async def _is_idle(self) -> bool:
        redis = connect(self.running.redis_url)
        try:
            await assert_nothing_pending(redis, Names())
        except AssertionError:
            return False
        finally:
            await redis.aclose()
        return True
