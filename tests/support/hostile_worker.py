"""Real worker that receives hostile input, and clients that use it at the same time."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from events.client.client import Client
from events.models import DocumentChange, DocumentChanged, DocumentIndexed, Filters
from events.names import GROUPS, Names, Topic
from events.server.connection import connect
from events.streams.backlog import ARCHIVERS, read_backlog
from events.streams.dead_letters import DeadLetter
from events.streams.entries import Entry, order
from tests.support.databases import Database
from tests.support.processes import WorkerProcess
from tests.support.streams import read_stream
from tests.support.waiting import eventually

__all__ = ["REASONS", "Innocents", "Suspect", "hostile_worker", "reply_counts"]

REASONS = frozenset(
    {
        "Damaged",
        "Encrypted",
        "LegacyFormat",
        "LimitExceeded",
        "MalformedEvent",
        "NoTextLayer",
        "UnsupportedContent",
    }
)
"""Errors that a hostile event may cause; any other is a defect."""

_PATIENCE = timedelta(minutes=2)
_DEFECTS = re.compile(r"agent\.broken|query\.crashed|Traceback|event\.failed")


@dataclass
class Suspect:
    """Worker with its streams, and observations from outside."""

    process: WorkerProcess
    redis: Redis
    client: Client
    names: Names = field(default_factory=Names)

    def peak_rss_bytes(self) -> int:
        """Peak of the worker's memory in bytes.

        Raises:
            OSError: the worker has ended.
        """
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def defects(self) -> list[str]:
        """Lines of its log about unexpected errors."""
        return [line for line in self.process.log().splitlines() if _DEFECTS.search(line)]

    async def letters(self) -> list[tuple[DeadLetter, Entry]]:
        """Every dead letter, with its entry."""
        entries = [
            entry
            for topic in GROUPS
            for entry in await read_stream(self.redis, self.names.dead(topic))
        ]
        return [(DeadLetter.from_fields(entry.fields, entry.id), entry) for entry in entries]

    async def passed(self, last: Mapping[Topic, str], timeout: float = 60) -> None:
        """Wait until the workers have settled all entries up to the given one of each topic."""
        for topic, entry_id in last.items():
            await eventually(
                partial(self._has_passed, topic, entry_id),
                f"all of {topic} up to {entry_id} is settled",
                timeout=timeout,
                every=0.05,
            )

    async def _has_passed(self, topic: Topic, entry_id: str) -> bool:
        self.peak_rss_bytes()
        key = self.names.stream(topic)
        groups: Any = await self.redis.xinfo_groups(key)
        pending: Any = await self.redis.xpending(key, GROUPS[topic])
        [own] = [one for one in groups if one["name"].decode() == GROUPS[topic]]
        delivered = order(own["last-delivered-id"].decode()) >= order(entry_id)
        oldest = pending["min"]
        return delivered and (oldest is None or order(oldest.decode()) > order(entry_id))

    async def settled(self, timeout: float = 60) -> None:
        """Wait until no group has work left, the archiver included."""
        await eventually(self._is_settled, "nothing waits", timeout=timeout, every=0.05)

    async def _is_settled(self) -> bool:
        self.peak_rss_bytes()
        streams = [
            *await read_backlog(self.redis, self.names),
            *await read_backlog(self.redis, self.names, ARCHIVERS),
        ]
        return not any(one.oldest_unacknowledged for one in streams)


@asynccontextmanager
async def hostile_worker(
    redis_url: str, database: Database, home: Path, **settings: str
) -> AsyncIterator[Suspect]:
    """Worker with all roles, and a client; both end with the context."""
    environment = {
        "HEADRACE_HOME": str(home),
        "HEADRACE_LOG_LEVEL": "warning",
        **{f"HEADRACE_{name.upper()}": value for name, value in settings.items()},
    }
    async with (
        connect(redis_url) as redis,
        WorkerProcess(redis_url, database, environment) as process,
        Client.connect(redis_url) as client,
    ):
        yield Suspect(process, redis, client)


@dataclass
class Innocents:
    """Clients that publish and ask in turn for the length of the context.

    ``served`` counts rounds. A round fails if its change or question takes over two minutes.
    """

    client: Client
    served: int = 0

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Run rounds for the length of the block; their errors are raised at its end."""
        stop = asyncio.Event()
        task = asyncio.create_task(self._go_on(stop))
        try:
            yield
        finally:
            stop.set()
            await task

    async def _go_on(self, stop: asyncio.Event) -> None:
        while not stop.is_set() or not self.served:
            await self._round(self.served)
            self.served += 1

    async def _round(self, number: int) -> None:
        word = f"innocent{number}"
        change = DocumentChange(project="innocents", uri=f"{number}.md", content=f"{word} mill")
        receipt = await self.client.publish(DocumentChanged(data=change))
        outcome = (await self.client.wait([receipt], _PATIENCE))[receipt.token]
        assert isinstance(outcome, DocumentIndexed), outcome
        answer = await self.client.ask(
            "innocents",
            word,
            filters=Filters(uri_prefix=f"{number}.md"),
            min_event=receipt.token,
            timeout=_PATIENCE,
        )
        assert not answer.stale
        assert [one.content for one in answer.results] == [f"{word} mill"]


def reply_counts(entries: Sequence[Entry]) -> dict[str, int]:
    """Number of terminal replies by query id in a reply stream."""
    counts: dict[str, int] = {}
    for entry in entries:
        query_id = json.loads(entry.fields[b"event"])["data"]["query_id"]
        counts[query_id] = counts.get(query_id, 0) + 1
    return counts
