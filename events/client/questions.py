"""Queries over streams: many concurrent questions share one reply stream."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextvars import Context
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from pydantic import ValidationError
from redis.asyncio import Redis

from events.models import (
    Event,
    Problem,
    Query,
    QueryAnswer,
    QueryAnswered,
    QueryFailed,
    QueryJudged,
    QueryRequested,
    first_problem,
    parse_event,
)
from events.names import Names, Topic
from events.server.connection import (
    LONGEST_BLOCK,
    QUESTIONS_UP_TO,
    Headroom,
    redis_errors,
    retrying,
)
from events.streams.entries import Entry, entries_of
from events.streams.replies import REPLIES
from runtime import protocol_limits, traces
from runtime.errors import (
    DeadlineExceeded,
    HeadraceError,
    MalformedEvent,
    Retryable,
    Unavailable,
    UsageError,
)

__all__ = ["Asker", "QueryRefused"]

_KEEP_QUERIES = 100_000
_KEEP_JUDGEMENTS = 100_000
_READ_COUNT = 100
_RECONNECT_SECONDS = 0.2
_CANCEL_AGAIN_SECONDS = 0.1
_MILLISECONDS = 1000
_LONGEST_WAY_BACK = timedelta(milliseconds=250)

log = logging.getLogger(__name__)
_Reply = QueryAnswered | QueryFailed


class QueryRefused(HeadraceError):
    """The reply to a query was ``query.failed``, for any reason; ``problem`` gives it.

    ``problem.retryable`` is true if the same question may succeed later: a server was down, or the
    deadline came first.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem

    @property
    def code(self) -> str:
        """The problem's type."""
        return self.problem.type


class Asker:
    """Sends queries and delivers each reply to the caller that waits for it.

    One reader task per partition is started by the first query that uses the partition and stopped
    by ``close``. ``reader`` is a blocking connection: see ``connect``.
    """

    def __init__(self, redis: Redis, reader: Redis, names: Names) -> None:
        self._redis = redis
        self._reader = reader
        self._names = names
        self._client = uuid4().hex
        self._headroom = Headroom(redis, up_to=QUESTIONS_UP_TO)
        self._waiting: dict[str, asyncio.Future[_Reply]] = {}
        self._readers: dict[int, asyncio.Task[None]] = {}

    async def ask(self, query: dict[str, Any], timeout: timedelta) -> QueryAnswer:
        """Return the answer to one query; ``query`` holds the fields of ``Query``.

        Raises:
            QueryRefused: the reply is ``query.failed``, also if the worker reached no server.
            DeadlineExceeded: no reply arrived in time.
            Unavailable: Redis can't be reached.
            LogFull: Redis is so near its memory limit that the reply might not fit.
            UsageError: a field is out of its limits.
        """
        query_id = uuid4().hex
        partition = self._names.query_partition(query_id)  # once: it may be another after a raise
        event = self._event(query_id, query, timeout, self._names.replies(self._client, partition))
        reply_future: asyncio.Future[_Reply] = asyncio.get_running_loop().create_future()
        self._waiting[event.id] = reply_future
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                await self._send(event, timeout, partition)
                reply = await reply_future
        except TimeoutError:
            raise DeadlineExceeded(
                f"no reply within {timeout.total_seconds():g} s",
                "check that a worker runs and reaches its servers (`headrace status`)",
            ) from None
        finally:
            del self._waiting[event.id]
        if isinstance(reply, QueryFailed):
            raise QueryRefused(reply.data.problem)
        return reply.data

    async def judge(self, judged: QueryJudged) -> None:
        """Send a judgement of a result.

        Raises:
            Unavailable: Redis could not be reached for 10 s.
            LogFull: Redis is near its memory limit.
        """
        await self._headroom.check()
        partition = self._names.query_partition(judged.data.query_id)
        add = partial(
            self._redis.xadd,
            self._names.stream(Topic.JUDGED, partition),
            {"event": judged.to_bytes()},
            maxlen=_KEEP_JUDGEMENTS,
            approximate=True,
        )
        await retrying(add)

    def statistics(self) -> dict[str, int]:
        """Count the queries that wait for their reply, and the reader tasks."""
        return {"waiting": len(self._waiting), "readers": len(self._readers)}

    async def close(self) -> None:
        """Stop reading; callers that still wait get Unavailable."""
        await asyncio.gather(*(_stop(reader) for reader in self._readers.values()))
        keys = [self._names.replies(self._client, partition) for partition in self._readers]
        self._readers.clear()
        self._fail_waiting(Unavailable("the client was closed before the reply came"))
        with contextlib.suppress(HeadraceError), redis_errors():
            for key in keys:
                await self._redis.unlink(key)

    def _event(
        self, query_id: str, query: dict[str, Any], timeout: timedelta, reply_to: str
    ) -> QueryRequested:
        patience = min(timeout, protocol_limits.QUERY_DEADLINE)
        deadline = datetime.now(UTC) + patience - min(patience / 10, _LONGEST_WAY_BACK)
        try:
            data = Query.model_validate({**query, "reply_to": reply_to, "deadline": deadline})
        except ValidationError as error:
            raise UsageError(f"query: {first_problem(error)}") from None
        return QueryRequested(id=query_id, data=data)

    async def _send(self, event: QueryRequested, timeout: timedelta, partition: int) -> None:
        """Send a query; if it is sent twice because a reply was lost, it still gets one answer."""
        attributes = {
            **traces.messaging(Topic.QUERY, "publish"),
            "messaging.message.conversation_id": event.id,
            "headrace.project": event.data.project,
        }
        with traces.span(f"publish {Topic.QUERY}", "producer", attributes=attributes) as span:
            await self._add(event.in_trace(span), timeout, partition)

    async def _add(self, event: QueryRequested, timeout: timedelta, partition: int) -> None:
        await self._headroom.check()
        self._ensure_reader(partition)
        add = partial(
            self._redis.xadd,
            self._names.stream(Topic.QUERY, partition),
            {"event": event.to_bytes()},
            maxlen=_KEEP_QUERIES,
            approximate=True,
        )
        await retrying(add, timeout)

    def _ensure_reader(self, partition: int) -> None:
        if partition not in self._readers:
            # it reads for all questions, so it must not be within the span of the first
            task = asyncio.create_task(
                self._read(partition), name=f"replies.{partition}", context=Context()
            )
            self._readers[partition] = task
            task.add_done_callback(partial(self._reader_ended, partition))

    def _reader_ended(self, partition: int, task: asyncio.Task[None]) -> None:
        """Fail all waiting callers: only a bug ends a reader that was not closed."""
        if task.cancelled():
            return
        error = task.exception()
        log.error("replies.reader_failed: %r", error)
        self._readers.pop(partition, None)
        self._fail_waiting(Unavailable(f"replies can't be read: {error}"))

    def _fail_waiting(self, error: HeadraceError) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(error)

    async def _read(self, partition: int) -> None:
        key = self._names.replies(self._client, partition)
        last = "0-0"
        while True:
            try:
                entries = await self._next(key, last)
            except Retryable as error:
                log.warning("replies.read_failed: %s", error)
                await asyncio.sleep(_RECONNECT_SECONDS)
                continue
            for entry in entries:
                last = entry.id
                self._deliver(entry)

    async def _next(self, key: str, last: str) -> list[Entry]:
        """Read the replies after ``last``, and trim those up to it from the stream."""
        block = int(LONGEST_BLOCK.total_seconds() * _MILLISECONDS)
        with redis_errors():
            async with self._reader.pipeline(transaction=False) as pipeline:
                pipeline.xtrim(key, minid=last, approximate=False)
                pipeline.xread({key: last}, count=_READ_COUNT, block=block)
                _, reply = await pipeline.execute()
        return entries_of(reply[0][1] if reply else None)

    def _deliver(self, entry: Entry) -> None:
        try:
            reply = _parsed(entry.fields.get(b"event", b""))
        except MalformedEvent as error:
            log.warning("replies.malformed: entry %s: %s", entry.id, error)
            return
        if isinstance(reply, QueryAnswered | QueryFailed):
            waiting = self._waiting.get(reply.data.query_id)
            if waiting is not None and not waiting.done():
                _record(reply)
                waiting.set_result(reply)


def _parsed(raw: bytes) -> Event:
    """Parse a reply; nearly every one is an answer, whose type need not be read beforehand.

    Raises:
        MalformedEvent: it is not an event.
    """
    try:
        return QueryAnswered.from_bytes(raw)
    except MalformedEvent:
        return parse_event(raw)


def _record(reply: _Reply) -> None:
    """Record the arrival of a reply in the trace of its question."""
    if reply.traceparent is not None:
        attributes = {
            **traces.messaging(REPLIES, "receive"),
            "messaging.message.conversation_id": reply.data.query_id,
            "messaging.destination.temporary": True,
        }
        name = f"receive {REPLIES}"
        traces.start(name, "consumer", parent=reply.trace, attributes=attributes).end()


async def _stop(task: asyncio.Task[None]) -> None:
    """Cancel a task until it ends.

    redis-py sends within ``asyncio.wait_for``, which before Python 3.12 swallows a cancellation
    that coincides with the end of the awaited operation.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_CANCEL_AGAIN_SECONDS)
