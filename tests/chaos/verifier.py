"""Verifier of a run: rules I1 to I5 of the fault plan, after any faults of the servers.

I1  the index is the fold of the acknowledged changes by position; no chunk is stored twice
I2  every acknowledged change is applied, superseded or dead-lettered, and has an outcome
I3  every question has exactly one terminal reply, which contains what it had to find
I4  no row or reply of a project contains a word of another
I5  nothing waits or is pending 15 s after all faults end, and no chunk waits for its vector
    (45 s if Redis lost the request); the memory of workers is limited
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg
from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.models import DocumentIndexed, DocumentRejected, QueryAnswered, parse_event
from events.names import LogPosition, Names, Topic
from events.streams.backlog import read_backlog
from events.streams.dead_letters import DeadLetters
from events.streams.entries import entries_of
from processors.chunking.types import CountTokens
from runtime.errors import HeadraceError
from tests.chaos.fleet import Worker
from tests.chaos.load import MARKERS
from tests.chaos.logbook import Logbook, Question
from tests.chaos.replies import Replies
from tests.chaos.wholeness import MODEL_TOKENS, assert_nothing_left_over, assert_whole
from tests.support.databases import Database
from tests.support.waiting import eventually

__all__ = ["Allowances", "Verifier"]

SETTLED_SECONDS = 15.0
REQUESTED_AGAIN_SECONDS = 45.0
"""Embedders repeat requests that Redis lost after two leases, every two leases."""
MOST_MEMORY_MB = 600.0
_MOST_LETTERS = 100_000
_BUSY_CONNECTIONS = """
    SELECT pid, state, wait_event, now() - xact_start AS age, pg_blocking_pids(pid) AS blocked_by,
           left(query, 100) AS query
      FROM pg_stat_activity
     WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()
"""
_OF_A_GENERATION = (
    "JOIN generations g ON g.id = t.generation_id JOIN projects p ON p.id = g.project_id"
)
_OF_A_PROJECT = "JOIN projects p ON p.id = t.project_id"
_TEXT_TABLES = {
    "documents": _OF_A_GENERATION,
    "chunks": _OF_A_GENERATION,
    "keyword_words": _OF_A_GENERATION,
    "keyword_vocabulary": _OF_A_GENERATION,
    "ledger": _OF_A_PROJECT,
    "contents": _OF_A_PROJECT,
}


@dataclass(frozen=True)
class Allowances:
    """Deviations from the rules that a scenario allows.

    ``dead``: ids of the events that must be the only dead letters. ``lost``: tokens of acknowledged
    changes that may be lost, as the runbook describes; a change that was handled before must still
    have its effect. ``lost_questions``: questions may be lost, and have no reply.
    ``lost_outcomes``: outcomes may be lost. ``settled_seconds``: another limit for I5.
    """

    dead: Collection[str] = ()
    lost: Collection[str] = ()
    lost_questions: bool = False
    lost_outcomes: bool = False
    settled_seconds: float = SETTLED_SECONDS


@dataclass
class Verifier:
    """Checks the servers directly, never through a proxy."""

    redis: Redis
    database: Database
    names: Names
    logbook: Logbook
    replies: Replies
    count_tokens: CountTokens
    limit_tokens: int = MODEL_TOKENS
    allowed: Allowances = field(default_factory=Allowances)

    async def verify(
        self, workers: Sequence[Worker] = (), allowed: Allowances | None = None
    ) -> None:
        """Check all rules; call it after all faults, with a worker of each role running."""
        self.allowed = allowed or Allowances()
        assert not self.logbook.perhaps, "publish them again, and then verify"
        await self.assert_settled(self.allowed.settled_seconds)
        self.assert_bounded(workers)
        async with self._owner() as owner:
            await self.assert_covered(owner)
            nothing = await self._lost(owner) | await self._dead_tokens()
            await self.assert_handled(owner)
            for project in self.logbook.projects:
                oracle = self.logbook.oracle(project, without=nothing)
                await assert_whole(owner, project, oracle, self.count_tokens, self.limit_tokens)
            await assert_nothing_left_over(owner)
            await self.assert_apart(owner)
        self.assert_answered()

    async def assert_settled(self, within: float = SETTLED_SECONDS) -> None:
        """I5: no entry waits, none is pending, no question is open; ``within``: seconds."""
        waiting = ["not looked yet"]

        async def settled() -> bool:
            waiting[:] = await self._unsettled()
            return not waiting

        try:
            await eventually(settled, "all is settled", timeout=within, every=0.2)
        except AssertionError:
            rows = "\n".join(waiting + await self._busy_connections())
            raise AssertionError(f"I5: not settled within {within} s:\n{rows}") from None

    async def assert_covered(self, owner: asyncpg.Connection) -> None:
        """I5: no chunk waits for its vector."""
        limit = REQUESTED_AGAIN_SECONDS if self.allowed.lost else self.allowed.settled_seconds

        async def covered() -> bool:
            return not await owner.fetchval("SELECT count(*) FROM pending_vectors")

        await eventually(covered, "I5: every chunk has its vector", timeout=limit, every=0.1)

    def assert_bounded(self, workers: Sequence[Worker]) -> None:
        """I5: no worker's peak memory exceeds the limit."""
        for worker in workers:
            memory = worker.most_memory_mb()
            assert memory is None or memory < MOST_MEMORY_MB, f"{memory:.0f} MB\n{worker.tail()}"

    async def assert_handled(self, owner: asyncpg.Connection) -> None:
        """I2: each change is handled, with an outcome; there is no unexpected dead letter."""
        await self._assert_only_expected_dead()
        handled = await _ledger(owner) | await self._dead_tokens()
        reported = await self._reported()
        for one in self.logbook.acknowledged:
            token = one.position.token
            if token in self.allowed.lost:
                continue
            assert token in handled, f"I2: {one} was not handled"
            assert self.allowed.lost_outcomes or token in reported, f"I2: no outcome of {one}"

    def assert_answered(self) -> None:
        """I3: each question has one reply, and the right one."""
        for question in self.logbook.questions:
            found = self.replies.by_query.get(question.id, [])
            least = 0 if self.allowed.lost_questions else 1
            assert least <= len(found) <= 1, f"I3: {len(found)} replies to {question}"
            if found:
                _assert_answers(question, found[0].event)

    async def assert_apart(self, owner: asyncpg.Connection) -> None:
        """I4: the rows and replies of a project contain no word of another project."""
        for project in self.logbook.projects:
            for other in self.logbook.projects:
                if other == project or other not in MARKERS:
                    continue
                for table in _TEXT_TABLES:
                    count = await _rows_with(owner, table, project, MARKERS[other])
                    assert count == 0, f"I4: {count} rows of {project} in {table} hold {other}"
                self._assert_replies_apart(project, MARKERS[other].encode())

    def _assert_replies_apart(self, project: str, foreign: bytes) -> None:
        for question in self.logbook.questions:
            if question.project == project:
                for reply in self.replies.by_query.get(question.id, []):
                    assert foreign not in reply.raw, f"I4: a foreign word in {reply.raw!r}"

    async def _unsettled(self) -> list[str]:
        """Descriptions of waiting entries and questions, or the error of an unreachable server."""
        try:
            backlog = await read_backlog(self.redis, self.names)
            await self.replies.collect(self.logbook.questions)
        except (HeadraceError, RedisError) as error:
            return [str(error)]
        waiting = [str(one) for one in backlog if one.oldest_unacknowledged is not None]
        if not self.allowed.lost_questions:
            waiting += map(str, self.replies.unanswered(self.logbook.questions))
        return waiting

    async def _busy_connections(self) -> list[str]:
        """Activity of Postgres and its blocked sessions."""
        async with self._owner() as owner:
            return [str(dict(row)) for row in await owner.fetch(_BUSY_CONNECTIONS)]

    async def _lost(self, owner: asyncpg.Connection) -> set[str]:
        """Changes that may be lost and have not been handled."""
        handled = await _ledger(owner)
        return {token for token in self.allowed.lost if token not in handled}

    async def _assert_only_expected_dead(self) -> None:
        dead = {
            event_id
            for letter in await DeadLetters(self.redis, self.names).list(_MOST_LETTERS)
            if (event_id := _event_id(letter.event)) is not None
        }
        assert dead == set(self.allowed.dead), f"I2: dead letters {dead}"

    async def _dead_tokens(self) -> set[str]:
        letters = await DeadLetters(self.redis, self.names).list(_MOST_LETTERS)
        return {
            LogPosition(letter.position, letter.partition).token
            for letter in letters
            if letter.position is not None
        }

    async def _reported(self) -> set[str]:
        reported: set[str] = set()
        for partition in range(self.names.partitions):
            stream = self.names.stream(Topic.OUTCOME, partition)
            for entry in entries_of(await self.redis.xrange(stream)):
                event = parse_event(entry.fields[b"event"])
                if isinstance(event, DocumentIndexed | DocumentRejected):
                    reported.add(event.data.token)
        return reported

    @asynccontextmanager
    async def _owner(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(self.database.owner_url)
        try:
            yield connection
        finally:
            await connection.close()


def _assert_answers(question: Question, event: object) -> None:
    """Assert that an answer that is not stale contains the document it must find."""
    if not isinstance(event, QueryAnswered):
        problem = getattr(event, "data", event)
        assert "InternalError" not in str(problem), f"I3: {problem} for {question}"
        return
    answer = event.data
    assert answer.project == question.project, f"I4: {answer.project} answers {question}"
    found = [one.citation.uri for one in answer.results]
    if question.must_find is not None and not answer.stale and "keyword" not in answer.degraded:
        assert question.must_find in found, f"I3: {found} answers {question}"


async def _ledger(owner: asyncpg.Connection) -> set[str]:
    rows = await owner.fetch("SELECT partition, position FROM ledger")
    return {LogPosition(row["position"], row["partition"]).token for row in rows}


async def _rows_with(owner: asyncpg.Connection, table: str, project: str, word: str) -> int:
    """Number of rows of a project that contain a word."""
    count: int = await owner.fetchval(
        f"SELECT count(*) FROM {table} t {_TEXT_TABLES[table]}"  # noqa: S608  # names from above
        " WHERE p.name = $1 AND position($2 IN t::text) > 0",
        project,
        word,
    )
    return count


def _event_id(raw: bytes) -> str | None:
    try:
        return parse_event(raw).id
    except HeadraceError:
        return None
