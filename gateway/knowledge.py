"""Questions, changes and documents for one caller: the common part of HTTP, MCP and the pages."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from content.detection import detect
from events.client.documents import bytes_fields
from events.client.operator_client import OperatorClient
from events.client.outcomes import Outcome
from events.client.publisher import Receipt
from events.models import (
    ContentReference,
    DocumentChange,
    DocumentChanged,
    Judgement,
    QueryAnswer,
    QueryFields,
    QueryOptions,
    first_problem,
)
from events.names import Lane
from gateway.auth.callers import Caller, Right
from gateway.auth.rates import Rates
from runtime.errors import (
    Busy,
    ConfigurationError,
    Conflict,
    Forbidden,
    NotFound,
    Unavailable,
    UnknownProject,
    UsageError,
)
from runtime.settings import GatewaySettings
from store.views.batches import Batches
from store.views.listing import ChangeRow, Listing

__all__ = [
    "Knowledge",
    "Published",
    "Question",
    "QuestionOptions",
    "WaitingChange",
    "event_of",
    "valid_change",
]

_BUSY_RETRY = timedelta(seconds=1)


class QuestionOptions(QueryOptions):
    """Options of a question that are one value each; times are in ms."""

    timeout_ms: Annotated[int, Field(ge=1, le=60_000)] = 10_000


class Question(QuestionOptions, QueryFields):
    """A question of one caller. The API key decides its agent."""


@dataclass(frozen=True, slots=True)
class Published:
    """Receipt of a change, and its outcome if it came in time."""

    receipt: Receipt
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class WaitingChange:
    """A change that was accepted, and that no worker has handled yet."""

    token: str
    state: Literal["waiting"] = "waiting"


class Knowledge:
    """The projects of a deployment, as callers may use them.

    Questions and changes go through the streams by ``client``. ``listing`` reads Postgres under
    row-level security. ``rates`` limits the bytes that a caller publishes per minute. It is None in
    the process of a user who has no API key, and therefore no limit.

    Every method raises ``Forbidden`` if the caller's key lacks the right, and ``UnknownProject`` if
    the key is of another project.
    """

    def __init__(
        self,
        client: OperatorClient,
        listing: Listing,
        batches: Batches,
        limits: GatewaySettings,
        rates: Rates | None = None,
    ) -> None:
        self._client = client
        self._accepted = client.accepted()
        self._listing = listing
        self._batches = batches
        self._limits = limits
        self._rates = rates
        self._asked: Counter[str] = Counter()

    async def ask(self, caller: Caller, project: str, question: Question) -> QueryAnswer:
        """Return the answer to a question. The caller's agent also searches its own documents.

        Raises:
            QueryRefused: the reply is ``query.failed``.
            Busy: too many questions are in flight, of this caller or in all.
            UsageError: fields contradict each other.
            DeadlineExceeded: no reply arrived in time.
            Unavailable: Redis can't be reached.
        """
        caller.require(Right.ASK)
        caller.scope(project)
        async with self._slot(caller):
            return await self._client.ask_query(
                project,
                question,
                agent=caller.agent,
                timeout=timedelta(milliseconds=question.timeout_ms),
            )

    async def judge(
        self, caller: Caller, project: str, judgement: Judgement, event_id: str | None = None
    ) -> str:
        """Publish a judgement of a result that the caller's agent got; return the event's id.

        Raises:
            UsageError: the event id is out of its limits.
            LogFull, Unavailable: see ``Client.judge``.
        """
        caller.require(Right.ASK)
        caller.scope(project)
        return await self._client.judge(
            project, **judgement.model_dump(), agent=caller.agent, event_id=event_id
        )

    async def publish(
        self,
        caller: Caller,
        change: DocumentChange | DocumentChanged,
        *,
        lane: Lane = Lane.LIVE,
        wait: timedelta | None = None,
    ) -> Published:
        """Publish one change; with ``wait``, wait so long for its outcome.

        Raises:
            Forbidden: the change is private to an agent that is not the caller's.
            EventIdReused: the event id was published with another change.
            RateLimited: the bytes of the caller are used up, until ``retry_after``.
            LogFull, LimitExceeded, Unavailable: see ``Client.publish``.
        """
        self._check_change(caller, change)
        event = change if isinstance(change, DocumentChanged) else event_of(change, None)
        await self._spend_bytes(caller, [event])
        receipt = await self._client.publish(event, lane)
        await self._record(caller, [event], [receipt])
        return Published(receipt, await self._outcome(receipt, wait) if wait else None)

    async def publish_many(
        self, caller: Caller, changes: Sequence[DocumentChanged], *, lane: Lane = Lane.LIVE
    ) -> list[Receipt]:
        """Publish changes; return receipts in their order. Errors are those of ``publish``."""
        for change in changes:
            self._check_change(caller, change)
        await self._spend_bytes(caller, changes)
        receipts = await self._client.publish_many(changes, lane)
        await self._record(caller, changes, receipts)
        return receipts

    async def content_fields(
        self, caller: Caller, project: str, uri: str, content: bytes
    ) -> dict[str, Any]:
        """Return the fields of a change for a content: as text where it is UTF-8, else as bytes.

        Bytes that are too big for an event are stored, and count as published.

        Raises:
            UnsupportedContent: the bytes are neither text nor of a known format.
            RateLimited: the caller published too many bytes in this minute.
            Unavailable: the content is too big for an event, and Postgres can't be reached.
        """
        caller.require(Right.PUBLISH)
        caller.scope(project)
        with suppress(UnicodeDecodeError):
            if b"\0" not in content:
                return {"content": content.decode()}
        detect(uri, None, content)

        async def keep(raw: bytes) -> ContentReference:
            if self._rates is not None:
                await self._rates.spend_bytes(caller, len(raw))
            return await self._client.keep_content(project, raw)

        return await bytes_fields(content, keep)

    async def move(
        self,
        caller: Caller,
        project: str,
        old_uri: str,
        uri: str,
        *,
        event_id: str | None = None,
        wait: timedelta | None = None,
    ) -> Published:
        """Publish the rename of a document that the caller may read; its properties stay.

        A move that is repeated with its ``event_id`` after it was applied has the same receipt.

        Raises:
            NotFound: there is no such document.
            Conflict: its stored text is not exactly the published one.
            UsageError: the new uri is out of its limits.
        """
        caller.require(Right.PUBLISH)
        listing = self.reading(caller, project)
        try:
            document = await listing.document(project, caller.agent, old_uri)
            lines = await listing.lines(project, caller.agent, old_uri)
        except NotFound:
            moved = await self._moved(caller, project, uri, event_id)
            if moved is None:
                raise
            return Published(moved, await self._outcome(moved, wait) if wait else None)
        if lines.exact is False:
            raise Conflict(
                f"the index has {old_uri[:200]!r} with other white space than was published",
                "publish the document under the new uri, and delete the old one",
            )
        change = valid_change(
            change="rename",
            project=project,
            old_uri=old_uri,
            uri=uri,
            content=lines.text + lines.ending,
            kind=document.kind,
            title=document.title,
            agent=document.agent,
            collections=document.collections,
            metadata=dict(document.metadata),
            media_type=document.media_type,
            commit=document.commit,
        )
        return await self.publish(caller, event_of(change, event_id), wait=wait)

    def reading(self, caller: Caller, project: str | None = None) -> Listing:
        """Return the listing for a caller that may read the project."""
        caller.require(Right.READ)
        if project is not None:
            caller.scope(project)
        return self._listing

    async def _moved(
        self, caller: Caller, project: str, uri: str, event_id: str | None
    ) -> Receipt | None:
        """Return the receipt of the event that made a document; None if another event did."""
        if event_id is None:
            return None
        with suppress(NotFound):
            document = await self._listing.document(project, caller.agent, uri)
            if document.event_id == event_id:
                return Receipt(document.token, event_id, duplicate=True)
        return None

    def _check_change(self, caller: Caller, change: DocumentChange | DocumentChanged) -> None:
        data = _data_of(change)
        caller.require(Right.PUBLISH)
        caller.scope(data.project)
        if data.agent not in (None, caller.agent):
            raise Forbidden(
                f"this API key may not write documents of the agent {data.agent!r}",
                "use a key of that agent (`headrace api-keys add --agent`)",
            )
        if data.origin is not None:
            raise UsageError(
                "a change from the gateway has no origin", "leave `origin` out; only `sync` sets it"
            )

    async def change(
        self, caller: Caller, project: str, token: str, *, wait: timedelta | None = None
    ) -> ChangeRow | WaitingChange:
        """Return the outcome of a change; with ``wait``, wait so long for it.

        A change without an outcome is waiting if a gateway accepted it in the last 24 hours.

        Raises:
            NotFound: the project has no such change.
            MalformedEvent: the text is not a token.
            Unavailable: Redis or Postgres can't be reached.
        """
        change = await self._handled(caller, project, token, wait)
        if change is None and await self._accepted.has(project, token):
            return WaitingChange(token)
        if change is None:
            raise NotFound(
                f"{project} has no change {token!r}", "use the token of a receipt, and its project"
            )
        return change

    async def change_of_event(
        self, caller: Caller, project: str, event_id: str, *, wait: timedelta | None = None
    ) -> ChangeRow | WaitingChange:
        """Return the outcome of a change that any client published in the last 24 hours.

        With ``wait``, wait so long for it. Signed changes are not found by their event id.

        Raises:
            NotFound: no change was published under this event id.
            Conflict: several changes were; each is in another partition.
            Unavailable: Redis or Postgres can't be reached.
        """
        self.reading(caller, project)
        tokens = await self._accepted.tokens_of(project, event_id)
        if not tokens:
            raise NotFound(
                f"{project} has no change with the event id {event_id!r} of the last 24 hours",
                "use the token of its receipt",
            )
        if len(tokens) > 1:
            raise Conflict(
                f"several changes have the event id {event_id!r}", "use the token of a receipt"
            )
        [token] = tokens
        return await self._handled(caller, project, token, wait) or WaitingChange(token)

    async def _record(
        self, caller: Caller, changes: Sequence[DocumentChanged], receipts: Sequence[Receipt]
    ) -> None:
        """Record published changes: as accepted, and those of a batch in it.

        If this fails, the caller repeats the request. Its receipts have the same tokens then, so
        each change counts once.

        Raises:
            Unavailable: a server can't be reached.
        """
        accepted: defaultdict[str, list[str]] = defaultdict(list)
        batches: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for change, receipt in zip(changes, receipts, strict=True):
            accepted[change.data.project].append(receipt.token)
            if change.batch is not None:
                batches[change.data.project, change.batch].append(receipt.token)
        for (project, batch), tokens in batches.items():
            started_by = f"API key {caller.key_id}"
            await self._batches.add_changes(project, batch, tokens, started_by=started_by)
        # they are published in any case; a client with the user of a publisher may not note them
        with suppress(Unavailable, ConfigurationError):
            for project, tokens in accepted.items():
                await self._accepted.add(project, tokens)

    async def _spend_bytes(
        self, caller: Caller, changes: Sequence[DocumentChange | DocumentChanged]
    ) -> None:
        size = sum(_size_bytes(_data_of(change)) for change in changes)
        if self._rates is not None and size:
            await self._rates.spend_bytes(caller, size)

    async def _handled(
        self, caller: Caller, project: str, token: str, wait: timedelta | None
    ) -> ChangeRow | None:
        """Return a handled change; with ``wait``, wait so long for it."""
        listing = self.reading(caller, project)
        change = await _row(listing, project, token, caller.agent)
        if change is None and wait is not None:
            await self._outcome(Receipt(token, "", duplicate=True), wait)
            change = await _row(listing, project, token, caller.agent)
        return change

    async def _outcome(self, receipt: Receipt, wait: timedelta) -> Outcome | None:
        with suppress(Unavailable):
            return (await self._client.wait([receipt], wait))[receipt.token]
        return None

    @asynccontextmanager
    async def _slot(self, caller: Caller) -> AsyncIterator[None]:
        """Count a question while it is in flight.

        The reply stream of a client keeps 1,000 entries, so more questions could lose a reply.
        """
        if self._asked.total() >= self._limits.questions:
            raise Busy(
                f"{self._limits.questions} questions are in flight",
                "ask again, or run another gateway",
                retry_after=_BUSY_RETRY,
            )
        if self._asked[caller.key_id] >= self._limits.questions_per_key:
            raise Busy(
                f"{self._limits.questions_per_key} questions of this API key are in flight",
                "wait for their answers",
                retry_after=_BUSY_RETRY,
            )
        self._asked[caller.key_id] += 1
        try:
            yield
        finally:
            self._asked[caller.key_id] -= 1
            if not self._asked[caller.key_id]:
                del self._asked[caller.key_id]


async def _row(listing: Listing, project: str, token: str, agent: str | None) -> ChangeRow | None:
    """Return a handled change. The first change of a project creates it when it is handled."""
    with suppress(UnknownProject):
        return await listing.change(project, token, agent)
    return None


def valid_change(**fields: Any) -> DocumentChange:
    """Build a change.

    Raises:
        UsageError: a field is out of its limits; the message names the first one.
    """
    try:
        return DocumentChange.model_validate(fields)
    except ValidationError as error:
        raise UsageError(first_problem(error), "correct this field") from None


def event_of(change: DocumentChange, event_id: str | None) -> DocumentChanged:
    """Wrap a change in an event, with a new id if there is none."""
    if event_id is None:
        return DocumentChanged(data=change)
    return DocumentChanged(id=event_id, data=change)


def _data_of(change: DocumentChange | DocumentChanged) -> DocumentChange:
    return change.data if isinstance(change, DocumentChanged) else change


def _size_bytes(change: DocumentChange) -> int:
    """Size of a change's content and metadata in UTF-8. Referenced content is not sent again."""
    metadata = json.dumps(dict(change.metadata), ensure_ascii=False) if change.metadata else ""
    body = change.body or b""
    content = body.encode() if isinstance(body, str) else body
    return len(content) + len(metadata.encode())
