"""Reports of dead letters: the reason is sent to the ledger, the outcome stream or the asker."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import structlog

from events.client.outcomes import Outcomes
from events.models import (
    DocumentChanged,
    DocumentChunked,
    DocumentEmbedded,
    DocumentEmbeddedData,
    DocumentRejected,
    DocumentRejectedData,
    Problem,
    QueryFailed,
    QueryFailedData,
)
from events.names import LogPosition, Topic
from events.streams.dead_letters import DeadLetter, storable
from events.streams.replies import Replies
from processors.admission import KeyRing
from runtime import metrics
from runtime.errors import MalformedEvent
from store.documents.pending import PendingVectors
from store.store import Store

__all__ = ["RejectionReporter"]

log = structlog.get_logger(__name__)

_LONGEST_URI = 2048
_LONGEST_KEY = 256
_CHUNKED = frozenset({Topic.CHUNKED_LIVE, Topic.CHUNKED_BULK})


class _Claim(NamedTuple):
    """Event and signature of a dead letter; its asserted position counts only if they verify."""

    raw: bytes
    signature: bytes | None


class RejectionReporter:
    """Hook that reports each dead letter before it is stored; unreadable parts are left out."""

    def __init__(
        self,
        store: Store,
        pending: PendingVectors,
        key_ring: KeyRing,
        outcomes: Outcomes,
        replies: Replies,
    ) -> None:
        self._store = store
        self._pending = pending
        self._key_ring = key_ring
        self._outcomes = outcomes
        self._replies = replies

    async def __call__(self, letter: DeadLetter) -> None:
        """Report a dead letter before it is written. It may run more than once per letter.

        Raises:
            Unavailable: Redis or Postgres is down; the event stays pending.
        """
        metrics.DEAD_LETTERS.inc(topic=letter.topic, error=letter.error)
        if letter.topic == Topic.QUERY:
            await self._fail_query(letter)
        elif letter.topic in _CHUNKED:
            await self._refuse_vectors(letter)
        elif letter.topic != Topic.JUDGED:
            await self._reject_document(letter)

    async def _refuse_vectors(self, letter: DeadLetter) -> None:
        """Record the texts as refused, so that they are not embedded again and again."""
        try:
            data = DocumentChunked.from_bytes(letter.event).data
        except MalformedEvent:
            return
        position = LogPosition.from_token(data.token)
        refused = await self._pending.refuse(
            data.project, data.generation, position, _reason(letter)
        )
        embedded = DocumentEmbeddedData(
            event_id=data.event_id,
            token=data.token,
            project=data.project,
            uri=data.uri,
            agent=data.agent,
            generation=data.generation,
            chunks_refused=refused,
        )
        await self._outcomes.publish([DocumentEmbedded(data=embedded)])

    async def _reject_document(self, letter: DeadLetter) -> None:
        event = _parsed(letter.event)
        data = event.get("data")
        data = data if isinstance(data, dict) else {}
        project = _text(data.get("project"))
        position = await self._position(letter, project)
        if position is None:
            return
        rejected = DocumentRejectedData(
            event_id=_text(event.get("id")),
            token=position.token,
            project=project,
            uri=_text(data.get("uri"), _LONGEST_URI),
            agent=_text(data.get("agent")),
            problem=_problem(letter),
            attempts=letter.attempts,
        )
        change = _change_of(letter)
        await self._record(letter, rejected, position, change)
        batch = None if change is None else change.batch
        await self._outcomes.publish([DocumentRejected(batch=batch, data=rejected)])
        metrics.CHANGES.inc(outcome="rejected", lane=Topic(letter.topic).lane)

    async def _record(
        self,
        letter: DeadLetter,
        rejected: DocumentRejectedData,
        position: LogPosition,
        change: DocumentChanged | None,
    ) -> None:
        project = rejected.project
        if project is None or not (await self._store.has_project(project) or change is not None):
            # the archive stores a change, and so creates its project; a replay then needs the
            # record that the change was rejected
            return
        await self._store.record_rejected(
            project=project,
            partition=letter.partition,
            position=position.position,
            event_id=rejected.event_id or "",
            problem=rejected.problem,
            published_at=None if change is None else change.time,
            batch=None if change is None else change.batch,
            agent=None if change is None else change.data.agent or "",
            uri=None if change is None else change.data.uri,
        )

    async def _position(self, letter: DeadLetter, project: str | None) -> LogPosition | None:
        """Return the change's original log position if its signature is valid, else its entry's.

        Bytes that are not an event, or too large, were refused before the signature was checked.
        Returns None if no token can name the position.
        """
        if letter.position is not None and project is not None:
            claim = _Claim(letter.event, letter.signature.encode() or None)
            if (await self._key_ring.refusals(project, [claim]))[0] is None:
                return LogPosition(letter.position, letter.partition)
        return _entry_position(letter)

    async def _fail_query(self, letter: DeadLetter) -> None:
        event = _parsed(letter.event)
        data = event.get("data")
        reply_to = _text(data.get("reply_to"), _LONGEST_KEY) if isinstance(data, dict) else None
        query_id = _text(event.get("id"))
        if reply_to is None or query_id is None:
            return
        failed = QueryFailed(data=QueryFailedData(query_id=query_id, problem=_problem(letter)))
        try:
            await self._replies.reply(
                failed,
                query_id=query_id,
                reply_to=reply_to,
                entry_id=letter.entry_id,
                partition=letter.partition,
            )
        except MalformedEvent as error:
            log.warning("reply.rejected", error=str(error))


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        event = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _change_of(letter: DeadLetter) -> DocumentChanged | None:
    """Parse the change in a dead letter. Returns None if it is not a valid one."""
    try:
        return DocumentChanged.from_bytes(letter.event)
    except MalformedEvent:
        return None


def _entry_position(letter: DeadLetter) -> LogPosition | None:
    """Position of the dead letter's entry.

    Returns None if its id was not made by a clock: no token exists to wait for such a change.
    """
    try:
        return LogPosition.of_entry(Topic(letter.topic).lane, letter.partition, letter.entry_id)
    except MalformedEvent:
        return None


def _text(value: object, longest: int = 128) -> str | None:
    """Text of a value in a form that can be stored, as a hostile event may contain anything.

    Returns None if it is not a text, or empty.
    """
    return storable(value)[:longest] or None if isinstance(value, str) else None


def _problem(letter: DeadLetter) -> Problem:
    return Problem(type=letter.error, detail=letter.detail[:4000])


def _reason(letter: DeadLetter) -> str:
    return f"embedding failed {letter.attempts} times: {letter.error}: {letter.detail}"[:4000]
