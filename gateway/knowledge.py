"""Questions, changes and documents for one caller: the common part of HTTP, MCP and the pages."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from events.client.client import Client
from events.client.outcomes import Outcome
from events.client.publisher import Receipt
from events.fields import Text, Token
from events.models import (
    DocumentChange,
    DocumentChanged,
    Filters,
    QueryAnswer,
    Weights,
    first_problem,
)
from events.names import Lane
from gateway.auth.callers import Caller, Right
from runtime import protocol_limits
from runtime.errors import (
    Busy,
    Conflict,
    Forbidden,
    NotFound,
    Unavailable,
    UsageError,
)
from runtime.settings import GatewaySettings
from store.views.listing import Listing

__all__ = ["Knowledge", "Published", "Question", "event_of", "valid_change"]

_BUSY_RETRY = timedelta(seconds=1)


class Question(BaseModel):
    """A question of one caller. The API key decides its project's agent; times are in ms."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: Annotated[
        Text, Field(min_length=1, max_length=protocol_limits.QUERY_CHARACTERS, pattern=r"\S")
    ]
    limit: Annotated[int, Field(ge=1, le=protocol_limits.RESULTS)] = protocol_limits.USUAL_RESULTS
    mode: Literal["hybrid", "vector", "keyword"] = "hybrid"
    weights: Weights | None = None
    filters: Filters = Filters()
    min_similarity: Annotated[float, Field(ge=0, le=1)] | None = None
    min_event: Token | None = None
    vectors: bool = False
    max_wait_ms: Annotated[int, Field(ge=0, le=60_000)] = 5_000
    explain: bool = False
    context_tokens: Annotated[int, Field(ge=32, le=protocol_limits.CONTEXT_TOKENS)] | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=60_000)] = 10_000


@dataclass(frozen=True, slots=True)
class Published:
    """Receipt of a change, and its outcome if it came in time."""

    receipt: Receipt
    outcome: Outcome | None


class Knowledge:
    """The projects of a deployment, as callers may use them.

    Questions and changes go through the streams by ``client``. ``listing`` reads Postgres under
    row-level security.

    Every method raises ``Forbidden`` if the caller's key lacks the right, and ``UnknownProject`` if
    the key is of another project.
    """

    def __init__(self, client: Client, listing: Listing, limits: GatewaySettings) -> None:
        self._client = client
        self._listing = listing
        self._limits = limits
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
            return await self._client.ask(
                project,
                question.text,
                agent=caller.agent,
                limit=question.limit,
                mode=question.mode,
                weights=question.weights,
                filters=question.filters,
                min_similarity=question.min_similarity,
                min_event=question.min_event,
                vectors=question.vectors,
                max_wait=timedelta(milliseconds=question.max_wait_ms),
                explain=question.explain,
                context_tokens=question.context_tokens,
                timeout=timedelta(milliseconds=question.timeout_ms),
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
            LogFull, LimitExceeded, Unavailable: see ``Client.publish``.
        """
        self._check_change(caller, change)
        receipt = await self._client.publish(change, lane)
        return Published(receipt, await self._outcome(receipt, wait) if wait else None)

    async def publish_many(
        self, caller: Caller, changes: Sequence[DocumentChanged], *, lane: Lane = Lane.LIVE
    ) -> list[Receipt]:
        """Publish changes; return receipts in their order. Errors are those of ``publish``."""
        for change in changes:
            self._check_change(caller, change)
        return await self._client.publish_many(changes, lane)

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
                f"the index holds {old_uri[:200]!r} with other white space than it was published",
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
        with contextlib.suppress(NotFound):
            document = await self._listing.document(project, caller.agent, uri)
            if document.event_id == event_id:
                return Receipt(document.token, event_id, duplicate=True)
        return None

    def _check_change(self, caller: Caller, change: DocumentChange | DocumentChanged) -> None:
        data = change.data if isinstance(change, DocumentChanged) else change
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

    async def wait_for(self, token: str, wait: timedelta) -> None:
        """Wait until a change has an outcome, or the time is over."""
        await self._outcome(Receipt(token, "", duplicate=True), wait)

    async def _outcome(self, receipt: Receipt, wait: timedelta) -> Outcome | None:
        with contextlib.suppress(Unavailable):
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
