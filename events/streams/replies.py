"""Terminal replies to queries; each query gets one."""

from __future__ import annotations

from datetime import timedelta

from redis.asyncio import Redis

from events.models import QueryAnswered, QueryFailed
from events.names import GROUPS, Names, Topic
from events.server.connection import retrying
from events.server.scripts import ReplyOnce
from events.streams.answer_records import JUDGEABLE
from runtime import traces
from runtime.errors import MalformedEvent

__all__ = ["REPLIES", "Replies"]

REPLIES = "replies"
"""Name of all reply streams in traces; each client has its own."""

_KEEP = timedelta(minutes=10)
_KEEP_REPLIES = 1000


class Replies:
    """Sends the terminal replies of an answerer.

    A reply can be read for 10 minutes after it was sent, and at most about the 1,000 latest replies
    of a client are kept. A query id is remembered as replied for 10 minutes or, if its answer can
    be judged, for as long as that.
    """

    def __init__(self, redis: Redis, names: Names) -> None:
        self._names = names
        self._reply_once = ReplyOnce(redis)

    async def reply(
        self,
        event: QueryAnswered | QueryFailed,
        *,
        query_id: str,
        reply_to: str,
        entry_id: str,
        partition: int = 0,
        record: bytes = b"",
    ) -> bool:
        """Reply unless the query already has its reply, and acknowledge the query's entry.

        Args:
            event: the terminal reply.
            query_id: id of the ``query.requested`` event.
            reply_to: the stream named by the query.
            entry_id: the query's entry in its stream.
            partition: the partition of that stream.
            record: the ``AnswerRecord`` of the reply; empty if it can't be judged.

        Returns:
            True if this was the first reply.

        Raises:
            MalformedEvent: ``reply_to`` is not a reply stream, or the key holds something else;
                nothing was written.
            Unavailable: Redis could not be reached for 10 s.
        """
        if not self._names.is_replies(reply_to, partition):
            raise MalformedEvent(
                f"reply_to {reply_to[:80]!r} is not a reply stream",
                f"use {self._names.replies('<client>', partition)}",
            )
        attributes = {
            **traces.messaging(REPLIES, "publish"),
            "messaging.message.conversation_id": query_id,
            "messaging.destination.temporary": True,
        }
        with traces.child(f"publish {REPLIES}", "producer", attributes=attributes) as span:
            body = event.in_trace(span).to_bytes()
            return await retrying(
                lambda: self._reply_once(
                    reply_stream=reply_to,
                    replied=self._names.replied(query_id, partition),
                    query_stream=self._names.stream(Topic.QUERY, partition),
                    group=GROUPS[Topic.QUERY],
                    entry_id=entry_id,
                    event=body,
                    keep=_KEEP,
                    keep_replies=_KEEP_REPLIES,
                    record=record,
                    keep_record=JUDGEABLE if record else _KEEP,
                )
            )
