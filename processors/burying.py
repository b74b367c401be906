"""Before an event goes to the dead letters: whoever waits for it is told why."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import structlog

from events.dead_letters import DeadLetter, storable
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
from events.names import Position, Topic
from events.outcomes import Outcomes
from events.replying import Replies
from processors.admission import KeyRing
from runtime import metrics
from runtime.errors import MalformedEvent
from store.pending import PendingVectors
from store.store import Store

__all__ = ["Burial"]

log = structlog.get_logger(__name__)

_LONGEST_URI = 2048
_LONGEST_KEY = 256
_CHUNKED = frozenset({Topic.CHUNKED_LIVE, Topic.CHUNKED_BULK})


class _Claim(NamedTuple):
    """What a letter says of its place is as good as its signature."""

    raw: bytes
    signature: bytes | None


class Burial:
    """Tells the ledger, the outcome stream or the asker. Parts that can't be read are left out."""

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
        """Run once or more for each letter, before it is written.

        Raises:
            Unavailable: Redis or Postgres is down; the event stays pending.
        """
        metrics.DEAD_LETTERS.inc(topic=letter.topic)
        if letter.topic == Topic.QUERY:
            await self._fail_query(letter)
        elif letter.topic in _CHUNKED:
            await self._refuse_vectors(letter)
        else:
            await self._reject_document(letter)

    async def _refuse_vectors(self, letter: DeadLetter) -> None:
        """Record the texts as refused, so that they are not embedded again and again."""
        try:
            data = DocumentChunked.from_bytes(letter.event).data
        except MalformedEvent:
            return
        position = Position.from_token(data.token)
        place = position.number, position.partition
        refused = await self._pending.refuse(data.project, data.generation, place, _reason(letter))
        embedded = DocumentEmbeddedData(
            event_id=data.event_id,
            token=data.token,
            project=data.project,
            uri=data.uri,
            generation=data.generation,
            chunks_refused=refused,
        )
        await self._outcomes.publish([DocumentEmbedded(data=embedded)])

    async def _reject_document(self, letter: DeadLetter) -> None:
        event = _readable(letter.event)
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
            problem=_problem(letter),
            attempts=letter.attempts,
        )
        await self._record(letter, rejected, position)
        await self._outcomes.publish([DocumentRejected(data=rejected)])

    async def _record(
        self, letter: DeadLetter, rejected: DocumentRejectedData, position: Position
    ) -> None:
        project = rejected.project
        if project is None or not (await self._store.has_project(project) or _is_kept(letter)):
            return
        await self._store.record_rejected(
            project=project,
            partition=letter.partition,
            position=position.number,
            event_id=rejected.event_id or "",
            problem=rejected.problem,
        )

    async def _position(self, letter: DeadLetter, project: str | None) -> Position | None:
        """Where the change first stood in the log; where it stands now, if nobody vouches for more.

        What is no event, or too big for one, is refused before its signature is looked at.
        """
        if letter.position is not None and project is not None:
            claim = _Claim(letter.event, letter.signature.encode() or None)
            if (await self._key_ring.refusals(project, [claim]))[0] is None:
                return Position.from_number(letter.position, letter.partition)
        return _own_position(letter)

    async def _fail_query(self, letter: DeadLetter) -> None:
        event = _readable(letter.event)
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
            log.warning("query.unanswerable", error=str(error))


def _readable(raw: bytes) -> dict[str, Any]:
    try:
        event = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _is_kept(letter: DeadLetter) -> bool:
    """Whether the archive takes it in, which makes its project; a replay must know of its fate."""
    try:
        DocumentChanged.from_bytes(letter.event)
    except MalformedEvent:
        return False
    return True


def _own_position(letter: DeadLetter) -> Position | None:
    """None for an id that no clock has made: nobody has a token to wait for such a change with."""
    position = Position(Topic(letter.topic).lane, letter.partition, letter.entry_id)
    try:
        return Position.from_token(position.token)
    except MalformedEvent:
        return None


def _text(value: object, longest: int = 128) -> str | None:
    """A value that can be reported: hostile events carry anything."""
    return storable(value)[:longest] or None if isinstance(value, str) else None


def _problem(letter: DeadLetter) -> Problem:
    return Problem(type=letter.error, detail=letter.detail[:4000])


def _reason(letter: DeadLetter) -> str:
    return f"embedding failed {letter.attempts} times: {letter.error}: {letter.detail}"[:4000]
