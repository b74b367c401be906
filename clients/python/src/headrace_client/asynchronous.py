"""The client for code with an event loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from headrace_client import calls, events, flows
from headrace_client.address import find_address
from headrace_client.calls import Call
from headrace_client.events import ChangeEvent
from headrace_client.exchange import ATTEMPT, DEADLINE, Patience
from headrace_client.flows import Flow
from headrace_client.groups import Groups
from headrace_client.models import (
    BatchProgress,
    BatchReport,
    Change,
    Lane,
    Outcome,
    ProjectSummary,
    Receipt,
)
from headrace_client.subscription import Subscription
from headrace_client.transport import AsyncTransport

__all__ = ["AsyncBatch", "AsyncHeadrace", "AsyncOutcomes", "AsyncProject"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _sending(
    call: Callable[Concatenate[str, Arguments], Call[Result]],
) -> Callable[Concatenate[AsyncProject, Arguments], Coroutine[Any, Any, Result]]:
    """Make a method that sends a call, with the same arguments and documentation."""

    @wraps(call)
    async def send(
        project: AsyncProject, /, *given: Arguments.args, **named: Arguments.kwargs
    ) -> Result:
        return await project._transport.send(call(project.name, *given, **named))

    return send


def _listing(
    flow: Callable[Concatenate[str, Arguments], Flow[Result]],
) -> Callable[Concatenate[AsyncProject, Arguments], AsyncIterator[Result]]:
    """Make a method that yields the items of a flow."""

    @wraps(flow)
    def items(
        project: AsyncProject, /, *given: Arguments.args, **named: Arguments.kwargs
    ) -> AsyncIterator[Result]:
        return project._transport.items(flow(project.name, *given, **named))

    return items


def _publishing(
    change: Callable[Arguments, ChangeEvent],
) -> Callable[Concatenate[AsyncProject, Arguments], Coroutine[Any, Any, Receipt]]:
    """Make a method that publishes a change."""

    @wraps(change)
    async def publish(
        project: AsyncProject, /, *given: Arguments.args, **named: Arguments.kwargs
    ) -> Receipt:
        return await project._publish(change(*given, **named))

    return publish


def _adding(
    change: Callable[Arguments, ChangeEvent],
) -> Callable[Concatenate[AsyncBatch, Arguments], Coroutine[Any, Any, None]]:
    """Make a method that adds a change to a batch."""

    @wraps(change)
    async def add(batch: AsyncBatch, /, *given: Arguments.args, **named: Arguments.kwargs) -> None:
        await batch._add(change(*given, **named))

    return add


class AsyncHeadrace:
    """A gateway, with an API key, for one event loop. See ``Headrace`` for the arguments.

    Every call raises a ``HeadraceError``: see ``headrace_client.errors``.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        deadline: timedelta = DEADLINE,
        attempt_timeout: timedelta = ATTEMPT,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        address = find_address(url, api_key)
        self.url = address.url
        self._transport = AsyncTransport(address, Patience(deadline, attempt_timeout), tls)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    def project(self, name: str) -> AsyncProject:
        """Return a project; nothing is sent, and its first document creates it."""
        return AsyncProject(name, self._transport)

    async def projects(self) -> tuple[ProjectSummary, ...]:
        """List the projects that the API key is valid for."""
        return await self._transport.send(calls.projects())


class AsyncProject:
    """One project of a gateway."""

    def __init__(self, name: str, transport: AsyncTransport) -> None:
        self.name = name
        self._transport = transport

    upsert = _publishing(events.upsert)
    rename = _publishing(events.rename)
    delete = _publishing(events.delete)
    put = _sending(calls.put)
    move = _sending(calls.move)
    ask = _sending(calls.ask)
    ask_many = _sending(calls.ask_many)
    judge = _sending(calls.judge)
    change = _sending(calls.change)
    summary = _sending(calls.summary)
    document = _sending(calls.document)
    text = _sending(calls.text)
    count_documents = _sending(calls.count_documents)
    collections = _sending(calls.collections)
    sources = _sending(calls.sources)
    batch_report = _sending(calls.batch)
    documents = _listing(flows.documents)
    chunks = _listing(flows.chunks)
    changes = _listing(flows.changes)

    async def wait(
        self, receipts: Iterable[Receipt], timeout: timedelta = timedelta(seconds=10)
    ) -> dict[str, Change]:
        """Return what became of each receipt's change, by token.

        Raises:
            DeadlineExceeded: some changes have no outcome in time.
        """
        handled = self._transport.items(flows.outcomes(self.name, receipts, timeout))
        return {change.token: change async for change in handled}

    def follow(
        self, *, batch: str | None = None, prefix: str | None = None, after: str | None = None
    ) -> AsyncOutcomes:
        """Follow the outcomes of changes, also of other publishers.

        Args:
            batch: only outcomes of this batch.
            prefix: beginning of the uris.
            after: position from which to continue, of an earlier iterator, within the latest
                100,000 outcomes. None means the next outcome.
        """
        subscription = Subscription(self.name, batch=batch, prefix=prefix, after=after)
        return AsyncOutcomes(subscription, self._transport)

    def batch(self, batch_id: str | None = None, *, lane: Lane = Lane.BULK) -> AsyncBatch:
        """Return a batch of changes, to be used as ``async with project.batch() as batch``.

        ``batch_id`` has up to 64 characters; the default is a new id.
        """
        return AsyncBatch(Groups(self.name, batch_id, lane), self._transport)

    async def _publish(self, event: ChangeEvent) -> Receipt:
        call = calls.publish(self.name, event.line(), event.lane or Lane.LIVE)
        return (await self._transport.send(call))[0]


class AsyncOutcomes:
    """Outcomes as they come, without end: ``async with project.follow() as outcomes``.

    When the context has begun, the outcome of every later change follows. A lost connection is
    replaced by a new one, and nothing is lost or repeated.

    Raises:
        Unauthenticated, Forbidden, UsageError: the stream is refused.
        Unavailable: the gateway, or a server behind it, could not be reached before the deadline.
    """

    def __init__(self, subscription: Subscription, transport: AsyncTransport) -> None:
        self._subscription = subscription
        self._transport = transport
        self._parts = transport.receive(subscription)

    @property
    def position(self) -> str | None:
        """Position after the latest outcome that was taken; None if nothing was received."""
        return self._subscription.position

    async def __aenter__(self) -> Self:
        while not self._subscription.is_live:
            await self._receive()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._parts.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outcome:
        while (outcome := self._subscription.take()) is None:
            await self._receive()
        return outcome

    async def _receive(self) -> None:
        """Receive a part. If it is cancelled, the next one comes over a new connection."""
        try:
            await anext(self._parts)
        except asyncio.CancelledError:
            self._parts = self._transport.receive(self._subscription)
            raise


class AsyncBatch:
    """Changes that are published in groups, while the caller makes more of them.

    Their order is kept. An error of a group is raised by a later call, or at the end of the
    context. After it, some changes may be published; to repeat the batch, use the same event ids.
    """

    def __init__(self, groups: Groups, transport: AsyncTransport) -> None:
        self._groups = groups
        self._transport = transport
        self._sending: asyncio.Task[tuple[Receipt, ...]] | None = None

    upsert = _adding(events.upsert)
    rename = _adding(events.rename)
    delete = _adding(events.delete)

    @property
    def id(self) -> str:
        """Id that every change of the batch carries."""
        return self._groups.id

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """Receipts of the published changes, in their order; complete after the context."""
        return tuple(self._groups.receipts)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            for call in self._groups.rest():
                await self._send(call)
            await self._collect()
        elif self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    def follow(
        self,
        *,
        every: timedelta = timedelta(seconds=0.5),
        patience: timedelta = timedelta(minutes=1),
    ) -> AsyncIterator[BatchProgress]:
        """Yield the progress of the batch when it changes, until every change has an outcome.

        Raises:
            DeadlineExceeded: nothing changed for as long as ``patience``.
        """
        return self._transport.items(
            flows.progress(self._groups.project, self.id, self.receipts, every, patience)
        )

    async def report(self) -> BatchReport:
        """Return the progress of the batch, with the latest changes that were rejected.

        Raises:
            NotFound: nothing of the batch was published.
        """
        return await self._transport.send(calls.batch(self._groups.project, self.id))

    async def _add(self, event: ChangeEvent) -> None:
        for call in self._groups.add(event):
            await self._send(call)

    async def _send(self, call: Call[tuple[Receipt, ...]]) -> None:
        """Send a group after the one before, so that changes of a document keep their order."""
        await self._collect()
        self._sending = asyncio.create_task(self._transport.send(call))

    async def _collect(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            self._groups.receipts.extend(await sending)
