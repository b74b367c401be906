"""Flows: sequences of calls that wait for outcomes, follow a batch or read all pages of a list.

A flow is a generator that does no I/O. It yields calls, for which it receives the results, pauses
and items. A transport drives it, blocking or in an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import Any, Generic, TypeAlias, TypeVar

from headrace_client import calls
from headrace_client.calls import Call
from headrace_client.errors import DeadlineExceeded, NotFound
from headrace_client.models import (
    BatchProgress,
    BatchReport,
    Change,
    ChangePage,
    Chunk,
    ChunkPage,
    Document,
    DocumentPage,
    Receipt,
)

__all__ = ["Flow", "Item", "Pause", "changes", "chunks", "documents", "outcomes", "progress"]

Result = TypeVar("Result")

_LONGEST_WAIT = timedelta(seconds=10)
_PAUSE_S = 0.1
_NO_PROGRESS = BatchProgress(
    published=0,
    indexed=0,
    superseded=0,
    duplicate=0,
    rejected=0,
    waiting=0,
    chunks_added=0,
    tokens_embedded=0,
    cost_usd=0.0,
    per_s=0.0,
)


@dataclass(frozen=True, slots=True)
class Item(Generic[Result]):
    """A value for the caller."""

    value: Result


@dataclass(frozen=True, slots=True)
class Pause:
    """A time to wait before the next step."""

    seconds: float


Flow: TypeAlias = Generator[Call[Any] | Pause | Item[Result], Any, None]


def outcomes(project: str, receipts: Iterable[Receipt], timeout: timedelta) -> Flow[Change]:
    """Yield what became of each change, in the order of the receipts.

    Raises:
        DeadlineExceeded: some changes have no outcome in time.
    """
    tokens = list(dict.fromkeys(receipt.token for receipt in receipts))
    ends_at = monotonic() + timeout.total_seconds()
    for handled, token in enumerate(tokens):
        change: Change | None = None
        while change is None:
            left = timedelta(seconds=max(0.0, ends_at - monotonic()))
            with suppress(NotFound):
                change = yield calls.change(project, token, wait=min(left, _LONGEST_WAIT))
            if change is None:
                if not left:
                    raise DeadlineExceeded(
                        f"{handled} of {len(tokens)} changes have an outcome after "
                        f"{timeout.total_seconds():g} s",
                        "check that workers run",
                    )
                yield Pause(min(_PAUSE_S, left.total_seconds()))
        yield Item(change)


def progress(
    project: str,
    batch_id: str,
    receipts: Collection[Receipt],
    every: timedelta,
    patience: timedelta,
) -> Flow[BatchProgress]:
    """Yield the progress of a batch whenever it has changed, until every change has an outcome.

    Raises:
        DeadlineExceeded: nothing changed for as long as ``patience``.
    """
    expected = {receipt.token for receipt in receipts}
    repeated = [receipt.token for receipt in receipts if receipt.duplicate]
    latest: BatchProgress | None = None
    ends_at = monotonic() + patience.total_seconds()
    while True:
        counted = _counted((yield from _progress(project, batch_id)), len(expected))
        if counted != latest:
            yield Item(counted)
            latest = counted
            ends_at = monotonic() + patience.total_seconds()
        elif counted.waiting <= len(repeated):
            expected -= yield from _foreign(project, batch_id, repeated)
        if not counted.waiting:
            return
        if monotonic() > ends_at:
            raise DeadlineExceeded(
                f"{counted.waiting} changes of the batch {batch_id} have no outcome, and none "
                f"came for {patience.total_seconds():g} s",
                "check that workers run; the changes are not lost",
            )
        yield Pause(every.total_seconds())


def _progress(project: str, batch_id: str) -> Generator[Call[BatchReport], Any, BatchProgress]:
    try:
        report: BatchReport = yield calls.batch(project, batch_id)
    except NotFound:  # nothing of it was published
        return _NO_PROGRESS
    return report.progress


def _counted(progress: BatchProgress, expected: int) -> BatchProgress:
    """Add the changes that only their publisher knows, because no worker has handled them."""
    published = max(progress.published, expected)
    waiting = published - progress.handled
    left = waiting / progress.per_s if waiting and progress.per_s else None
    return progress.model_copy(
        update={"published": published, "waiting": waiting, "seconds_left": left}
    )


def _foreign(
    project: str, batch_id: str, tokens: list[str]
) -> Generator[Call[Change | None], Any, set[str]]:
    """Find changes that were published before, in another batch: they don't count in this one.

    Changes that are handled are removed from ``tokens``.
    """
    foreign = set()
    while tokens:
        change: Change | None = None
        with suppress(NotFound):
            change = yield calls.change(project, tokens[0])
        if change is None:
            break  # those that follow it are not handled either, or soon will be
        tokens.pop(0)
        if change.batch != batch_id:
            foreign.add(change.token)
    return foreign


def documents(
    project: str,
    *,
    prefix: str | None = None,
    kind: str | None = None,
    collection: str | None = None,
    source: str | None = None,
) -> Flow[Document]:
    """Yield documents by uri.

    Args:
        project: the project to list.
        prefix: beginning of the uris.
        kind: kind of content.
        collection: name of a collection.
        source: name of a source.
    """
    return _items(
        lambda after: calls.document_page(
            project, after, prefix=prefix, kind=kind, collection=collection, source=source
        )
    )


def chunks(project: str, uri: str) -> Flow[Chunk]:
    """Yield the chunks of a document in their order.

    Raises:
        NotFound: there is no such document.
    """
    return _items(lambda after: calls.chunk_page(project, after, uri=uri))


def changes(project: str, *, state: str | None = None, uri: str | None = None) -> Flow[Change]:
    """Yield handled changes, newest first.

    Args:
        project: the project to list.
        state: ``indexed``, ``superseded`` or ``rejected``.
        uri: only changes of this document.
    """
    return _items(lambda after: calls.change_page(project, after, state=state, uri=uri))


def _items(page_after: Callable[[Any], Call[Any]]) -> Flow[Any]:
    after = None
    while True:
        page: ChangePage | ChunkPage | DocumentPage = yield page_after(after)
        for item in page.items:
            yield Item(item)
        after = page.next
        if after is None:
            return
