"""Seeded traffic of two projects, recorded in a logbook."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any, Literal

from redis.asyncio import Redis
from redis.exceptions import RedisError

from events.client.client import Client
from events.models import DocumentChange, DocumentChanged, Query, QueryRequested
from events.names import Lane, Names, Topic
from runtime.errors import HeadraceError
from tests.chaos.journal import Journal
from tests.chaos.logbook import Logbook, Published, Question
from tests.chaos.seeds import size
from tests.support.waiting import slowness

__all__ = ["MARKERS", "PROJECTS", "Load"]

PROJECTS = ("amber", "cobalt")
MARKERS = {project: f"{project}word" for project in PROJECTS}
"""Prefix of the words that only this project has."""

CHANGES_PER_SECOND = size(20, thorough=40)
QUESTIONS_PER_SECOND = size(3, thorough=5)
_DEADLINE = timedelta(seconds=60)
_MAX_WAIT_MS = 30_000
_AGAIN_SECONDS = 0.1
_LONGEST_BATCH = 8
_REPLIES_PER_STREAM = 400
_MODES: tuple[Literal["hybrid", "vector", "keyword"], ...] = ("hybrid", "vector", "keyword")


@dataclass
class Load:
    """Publishes and asks as the seed determines.

    Changes go to both projects and both lanes. A call that fails is repeated with the same event
    ids for as long as ``patience``, and then recorded as uncertain. A third of the questions name
    the change that they must find. ``redis`` is used for asking; it and ``client`` may go through a
    proxy.
    """

    client: Client
    redis: Redis
    names: Names
    logbook: Logbook
    seed: int
    patience: timedelta = timedelta(seconds=60)
    journals: dict[str, Journal] = field(init=False)

    def __post_init__(self) -> None:
        self._rng = random.Random(f"load {self.seed}")
        self._kept = 0
        self.journals = {
            project: Journal(self.seed * 2 + number, project, MARKERS[project])
            for number, project in enumerate(PROJECTS)
        }

    async def publish(self, changes: int) -> list[Published]:
        """Publish ``changes`` changes, a few at a time, until they are acknowledged."""
        done: list[Published] = []
        while len(done) < changes:
            journal = self.journals[self._rng.choice(PROJECTS)]
            lane = Lane.BULK if self._rng.random() < 0.7 else Lane.LIVE
            number = min(self._rng.randint(1, _LONGEST_BATCH), changes - len(done))
            done += await self.publish_these(list(journal.changes(number)), lane)
        return done

    async def publish_these(
        self, events: Sequence[DocumentChanged], lane: Lane = Lane.LIVE
    ) -> list[Published]:
        """Publish events until they are acknowledged or ``patience`` ends."""
        entries = [self.logbook.publishing(event, lane) for event in events]
        deadline = monotonic() + self.patience.total_seconds()
        while True:
            try:
                receipts = await self.client.publish_many(events, lane)
            except HeadraceError as error:
                for entry in entries:
                    entry.refusals.append(type(error).__name__)
            else:
                for entry, receipt in zip(entries, receipts, strict=True):
                    entry.receipt = receipt
                return entries
            if monotonic() > deadline:
                return entries
            await asyncio.sleep(_AGAIN_SECONDS)

    async def ask(self, questions: int) -> list[Question]:
        """Ask ``questions`` questions, one after the other, without waiting for replies."""
        return [await self._ask(self._rng.random() < 1 / 3) for _ in range(questions)]

    @asynccontextmanager
    async def running(
        self,
        *,
        changes_per_second: float = CHANGES_PER_SECOND,
        questions_per_second: float = QUESTIONS_PER_SECOND,
    ) -> AsyncIterator[None]:
        """Traffic for as long as the block lasts; it finishes what is in progress.

        The rates are those on a quiet machine; they are lower on a busy one.
        """
        stop = asyncio.Event()
        changes = changes_per_second / _LONGEST_BATCH / slowness()
        questions = questions_per_second / slowness()
        tasks = [
            asyncio.create_task(_steadily(stop, changes, lambda: self.publish(_LONGEST_BATCH))),
            asyncio.create_task(_steadily(stop, questions, lambda: self.ask(1))),
        ]
        try:
            yield
        finally:
            stop.set()
            await asyncio.gather(*tasks)

    async def _ask(self, find: bool) -> Question:
        project = self._rng.choice(PROJECTS)
        text = " ".join(f"{MARKERS[project]}{self._rng.randint(0, 4000)}" for _ in range(3))
        mode = self._rng.choice(_MODES)
        wish: dict[str, Any] = {}
        if find:
            kept = await self._keep(project)
            if kept.receipt is not None:
                uri = kept.event.data.uri
                wish = {"min_event": kept.receipt.token, "must_find": uri}
                text, mode = _word_of(project, uri), "keyword"
        return await self._send(project, text, mode, wish)

    async def _keep(self, project: str) -> Published:
        """Publish a document that is never changed again."""
        self._kept += 1
        uri = f"kept/{self._kept:05}.md"
        content = f"# Kept\n\n{_word_of(project, uri)} stands in {MARKERS[project]}0 alone.\n"
        change = DocumentChange(project=project, uri=uri, content=content)
        event = DocumentChanged(id=f"kept-{self.seed}-{self._kept}", data=change)
        [published] = await self.publish_these([event])
        return published

    async def _send(self, project: str, text: str, mode: Any, wish: dict[str, Any]) -> Question:
        """Send a query; a lost reply of Redis leads to a second entry with the same query id."""
        number = len(self.logbook.questions)
        query_id = f"query-{self.seed}-{number}"
        partition = self.names.query_partition(query_id)
        client = f"chaos-{self.seed}-{number // _REPLIES_PER_STREAM}"
        reply_to = self.names.replies(client, partition)
        question = self.logbook.asking(
            Question(query_id, project, text, reply_to, partition, **wish)
        )
        query = Query(
            project=project,
            text=text,
            mode=mode,
            reply_to=reply_to,
            min_event=question.min_event,
            max_wait_ms=_MAX_WAIT_MS,
            deadline=datetime.now(UTC) + _DEADLINE,
        )
        event = QueryRequested(id=query_id, data=query).to_bytes()
        stream = self.names.stream(Topic.QUERY, partition)
        deadline = monotonic() + self.patience.total_seconds()
        while not question.entry_ids and monotonic() < deadline:
            try:
                entry_id: Any = await self.redis.xadd(stream, {"event": event})
                question.entry_ids.append(entry_id.decode())
            except (RedisError, OSError):
                await asyncio.sleep(_AGAIN_SECONDS)
        return question


def _word_of(project: str, uri: str) -> str:
    """Word that only this document has, without an ending that a stemmer removes."""
    digits = "".join("bcdfghjklm"[int(digit)] for digit in uri if digit.isdigit())
    return f"{MARKERS[project]}kept{digits}x"


async def _steadily(
    stop: asyncio.Event, rate: float, work: Callable[[], Awaitable[object]]
) -> None:
    """Call ``work`` at most ``rate`` times a second, one after the other; never at a rate of 0."""
    start, done = monotonic(), 0
    while rate and not stop.is_set():
        await work()
        done += 1
        pause = start + done / rate - monotonic()
        try:
            await asyncio.wait_for(stop.wait(), max(0.0, pause))
        except TimeoutError:
            continue
