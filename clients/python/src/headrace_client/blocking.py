"""The client for code without an event loop."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from datetime import timedelta
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar

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
from headrace_client.transport import BlockingTransport

__all__ = ["Batch", "Headrace", "Outcomes", "Project"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _sending(
    call: Callable[Concatenate[str, Arguments], Call[Result]],
) -> Callable[Concatenate[Project, Arguments], Result]:
    """Make a method that sends a call, with the same arguments and documentation."""

    @wraps(call)
    def send(project: Project, /, *given: Arguments.args, **named: Arguments.kwargs) -> Result:
        return project._transport.send(call(project.name, *given, **named))

    return send


def _listing(
    flow: Callable[Concatenate[str, Arguments], Flow[Result]],
) -> Callable[Concatenate[Project, Arguments], Iterator[Result]]:
    """Make a method that yields the items of a flow."""

    @wraps(flow)
    def items(
        project: Project, /, *given: Arguments.args, **named: Arguments.kwargs
    ) -> Iterator[Result]:
        return project._transport.items(flow(project.name, *given, **named))

    return items


def _publishing(
    change: Callable[Arguments, ChangeEvent],
) -> Callable[Concatenate[Project, Arguments], Receipt]:
    """Make a method that publishes a change."""

    @wraps(change)
    def publish(project: Project, /, *given: Arguments.args, **named: Arguments.kwargs) -> Receipt:
        return project._publish(change(*given, **named))

    return publish


def _adding(
    change: Callable[Arguments, ChangeEvent],
) -> Callable[Concatenate[Batch, Arguments], None]:
    """Make a method that adds a change to a batch."""

    @wraps(change)
    def add(batch: Batch, /, *given: Arguments.args, **named: Arguments.kwargs) -> None:
        batch._add(change(*given, **named))

    return add


class Headrace:
    """A gateway, with an API key. It is safe to use from many threads.

    Args:
        url: address of the gateway. The default is HEADRACE_URL, else that of a running
            ``headrace up``.
        api_key: the key. The default is HEADRACE_API_KEY, else that of ``headrace up``.
        deadline: time for a call with all its attempts.
        attempt_timeout: time for one attempt. Both times are longer for a call whose response the
            gateway may delay.
        tls: settings of TLS, for a gateway with a private certificate authority.

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
        self._transport = BlockingTransport(address, Patience(deadline, attempt_timeout), tls)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def project(self, name: str) -> Project:
        """Return a project; nothing is sent, and its first document creates it."""
        return Project(name, self._transport)

    def projects(self) -> tuple[ProjectSummary, ...]:
        """List the projects that the API key is valid for."""
        return self._transport.send(calls.projects())


class Project:
    """One project of a gateway."""

    def __init__(self, name: str, transport: BlockingTransport) -> None:
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

    def wait(
        self, receipts: Iterable[Receipt], timeout: timedelta = timedelta(seconds=10)
    ) -> dict[str, Change]:
        """Return what became of each receipt's change, by token.

        Raises:
            DeadlineExceeded: some changes have no outcome in time.
        """
        handled = self._transport.items(flows.outcomes(self.name, receipts, timeout))
        return {change.token: change for change in handled}

    def follow(
        self, *, batch: str | None = None, prefix: str | None = None, after: str | None = None
    ) -> Outcomes:
        """Follow the outcomes of changes, also of other publishers.

        Args:
            batch: only outcomes of this batch.
            prefix: beginning of the uris.
            after: position from which to continue, of an earlier iterator, within the latest
                100,000 outcomes. None means the next outcome.
        """
        subscription = Subscription(self.name, batch=batch, prefix=prefix, after=after)
        return Outcomes(subscription, self._transport)

    def batch(self, batch_id: str | None = None, *, lane: Lane = Lane.BULK) -> Batch:
        """Return a batch of changes, to be used as ``with project.batch() as batch``.

        ``batch_id`` has up to 64 characters; the default is a new id.
        """
        return Batch(Groups(self.name, batch_id, lane), self._transport)

    def _publish(self, event: ChangeEvent) -> Receipt:
        call = calls.publish(self.name, event.line(), event.lane or Lane.LIVE)
        return self._transport.send(call)[0]


class Outcomes:
    """Outcomes as they come, without end: ``with project.follow() as outcomes``.

    When the context has begun, the outcome of every later change follows. A lost connection is
    replaced by a new one, and nothing is lost or repeated.

    Raises:
        Unauthenticated, Forbidden, UsageError: the stream is refused.
        Unavailable: the gateway, or a server behind it, could not be reached before the deadline.
    """

    def __init__(self, subscription: Subscription, transport: BlockingTransport) -> None:
        self._subscription = subscription
        self._parts = transport.receive(subscription)

    @property
    def position(self) -> str | None:
        """Position after the latest outcome that was taken; None if nothing was received."""
        return self._subscription.position

    def __enter__(self) -> Self:
        while not self._subscription.is_live:
            next(self._parts)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._parts.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Outcome:
        while (outcome := self._subscription.take()) is None:
            next(self._parts)
        return outcome


class Batch:
    """Changes that are published in groups, while the caller makes more of them.

    Their order is kept. An error of a group is raised by a later call, or at the end of the
    context. After it, some changes may be published; to repeat the batch, use the same event ids.
    """

    def __init__(self, groups: Groups, transport: BlockingTransport) -> None:
        self._groups = groups
        self._transport = transport
        self._sender = ThreadPoolExecutor(1, "headrace-batch")
        self._sending: Future[tuple[Receipt, ...]] | None = None

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        try:
            if error is None:
                for call in self._groups.rest():
                    self._send(call)
                self._collect()
        finally:
            self._sender.shutdown()

    def follow(
        self,
        *,
        every: timedelta = timedelta(seconds=0.5),
        patience: timedelta = timedelta(minutes=1),
    ) -> Iterator[BatchProgress]:
        """Yield the progress of the batch when it changes, until every change has an outcome.

        Raises:
            DeadlineExceeded: nothing changed for as long as ``patience``.
        """
        return self._transport.items(
            flows.progress(self._groups.project, self.id, self.receipts, every, patience)
        )

    def report(self) -> BatchReport:
        """Return the progress of the batch, with the latest changes that were rejected.

        Raises:
            NotFound: nothing of the batch was published.
        """
        return self._transport.send(calls.batch(self._groups.project, self.id))

    def _add(self, event: ChangeEvent) -> None:
        for call in self._groups.add(event):
            self._send(call)

    def _send(self, call: Call[tuple[Receipt, ...]]) -> None:
        """Send a group after the one before, so that changes of a document keep their order."""
        self._collect()
        context = copy_context()  # with the current span
        self._sending = self._sender.submit(context.run, self._transport.send, call)

    def _collect(self) -> None:
        sending, self._sending = self._sending, None
        if sending is not None:
            self._groups.receipts.extend(sending.result())
