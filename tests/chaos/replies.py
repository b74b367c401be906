"""Replies to the questions of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from redis.asyncio import Redis

from events.models import QueryAnswered, QueryFailed, parse_event
from events.streams.entries import Entry, entries_of, order
from tests.chaos.logbook import Question

__all__ = ["Replies", "Reply"]


@dataclass(frozen=True)
class Reply:
    """Entry of a reply stream."""

    entry_id: str
    raw: bytes

    @property
    def event(self) -> QueryAnswered | QueryFailed:
        """Event of the entry."""
        event = parse_event(self.raw)
        assert isinstance(event, QueryAnswered | QueryFailed)
        return event


@dataclass
class Replies:
    """Reads reply streams without changing them.

    A stream keeps its latest 1,000 replies for ten minutes, so call ``collect`` more often.
    """

    redis: Redis
    by_query: defaultdict[str, list[Reply]] = field(default_factory=lambda: defaultdict(list))
    _read_to: dict[str, str] = field(default_factory=dict)

    async def collect(self, questions: Iterable[Question]) -> None:
        """Read the new entries of the streams that the questions name."""
        for stream in dict.fromkeys(one.reply_to for one in questions):
            after = self._read_to.get(stream, "0-0")
            for entry in entries_of(await self.redis.xrange(stream, f"({after}")):
                self._take(entry)
                self._read_to[stream] = entry.id

    def unanswered(self, questions: Iterable[Question]) -> list[Question]:
        """Questions without a reply."""
        return [one for one in questions if not self.by_query.get(one.id)]

    def milliseconds(self, question: Question) -> int:
        """Milliseconds between question and first reply, by the clock of Redis."""
        asked, replied = question.entry_ids[0], self.by_query[question.id][0].entry_id
        return order(replied)[0] - order(asked)[0]

    def _take(self, entry: Entry) -> None:
        reply = Reply(entry.id, entry.fields[b"event"])
        self.by_query[reply.event.data.query_id].append(reply)
