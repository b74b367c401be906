"""Steady changes and questions during another activity, with a record of their results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic, perf_counter

from events.client.client import Client
from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentChanged, QueryAnswer
from runtime.errors import HeadraceError

__all__ = ["Traffic", "under_traffic"]

_MARKED_EVERY = 5


@dataclass
class Traffic:
    """A publisher and an asker at steady rates.

    Every fifth change is a document with a unique word. As soon as it is acknowledged the word is
    queried; ``unseen`` has the documents that were not returned, with the answer. ``marked``: their
    contents by uri. A question or an outcome that takes longer than ``patience`` is a failure.
    """

    client: Client
    project: str
    changes: Iterator[DocumentChanged]
    questions: Iterator[str]
    changes_per_second: float
    questions_per_second: float
    marked: dict[str, str] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    answers: list[QueryAnswer] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)
    failures: list[HeadraceError] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    patience: timedelta = timedelta(seconds=10)
    _running: set[asyncio.Task[None]] = field(default_factory=set)
    _order: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def generations(self) -> list[int]:
        """The generations that answered, in the order of the answers."""
        return list(dict.fromkeys(answer.generation for answer in self.answers))

    async def publish(self) -> None:
        """Publish changes until cancelled."""
        await self._steadily(self.changes_per_second, self._change)

    async def ask(self) -> None:
        """Ask questions until cancelled."""
        await self._steadily(self.questions_per_second, self._question)

    async def finish(self) -> None:
        """Wait for the requests in flight."""
        await asyncio.gather(*self._running)

    async def _steadily(self, rate: float, work: Callable[[int], Awaitable[None]]) -> None:
        """Run an open loop: a slow answer does not delay the next question; rate 0 does nothing."""
        if not rate:
            return
        start, count = monotonic(), 0
        while True:
            task = asyncio.ensure_future(work(count))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            count += 1
            await asyncio.sleep(max(0.0, start + count / rate - monotonic()))

    async def _change(self, number: int) -> None:
        marked = number % _MARKED_EVERY == 0
        async with self._order:
            change = self._marked() if marked else next(self.changes)
            receipt = await self.client.publish(change)
        self.receipts.append(receipt)
        if marked:
            await self._check_visible(receipt, change.data.uri)

    def _marked(self) -> DocumentChanged:
        uri = f"marked/{len(self.marked):05}.md"
        content = f"# Marked\n\n{_marker(uri)} stands here alone.\n"
        self.marked[uri] = content
        change = DocumentChange(project=self.project, uri=uri, content=content)
        return DocumentChanged(data=change)

    async def _check_visible(self, receipt: Receipt, uri: str) -> None:
        try:
            await self.client.wait([receipt], self.patience)
            answer = await self.client.ask(
                self.project, _marker(uri), mode="keyword", limit=1, timeout=self.patience
            )
        except HeadraceError as error:
            self.failures.append(error)
            return
        self.answers.append(answer)
        if [result.citation.uri for result in answer.results] != [uri]:
            self.unseen.append(f"{uri}: {answer.model_dump_json(exclude_none=True)}")

    async def _question(self, _number: int) -> None:
        text = next(self.questions)
        began = perf_counter()
        try:
            answer = await self.client.ask(self.project, text, timeout=self.patience)
        except HeadraceError as error:
            self.failures.append(error)
            return
        self.times_ms.append((perf_counter() - began) * 1000)
        self.answers.append(answer)


def _marker(uri: str) -> str:
    """Return the word that only this document has, without an ending that stemming would cut."""
    return "mark" + "".join("bcdfghjklm"[int(digit)] for digit in uri if digit.isdigit()) + "x"


@asynccontextmanager
async def under_traffic(traffic: Traffic) -> AsyncIterator[Traffic]:
    """Run traffic for the duration of the context, then wait for the requests in flight."""
    tasks = [asyncio.create_task(traffic.publish()), asyncio.create_task(traffic.ask())]
    try:
        yield traffic
    finally:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await traffic.finish()
    failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if failed:
        raise failed[0]
