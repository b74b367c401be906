"""Purging of documents from streams: entries are deleted, and the memory that held them is freed.

Redis only marks an entry as deleted. Its bytes stay in their node, and in the files that Redis
writes, until every entry of the node is deleted: up to 100 entries share one.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from time import monotonic
from typing import Any

from redis.asyncio import Redis

from events.models import DocumentRejected, QueryAnswered
from events.names import GROUPS, DocumentKey, Lane, LogPosition, Names, Topic, kept_position
from events.server.connection import redis_errors
from events.streams.answer_records import AnswerRecord
from events.streams.entries import Entry, entries_of
from events.streams.trim import trim_handled
from runtime.errors import ConfigurationError, MalformedEvent

__all__ = ["PurgeTargets", "PurgedStreams", "StreamPurge", "referred", "require_rights"]

_PAGE = 500
_NODE_ENTRIES = 100
_LOOK_EVERY_S = 0.1

_REWRITE = """
redis.call('XDEL', KEYS[1], unpack(ARGV))
local entries = redis.call('XRANGE', KEYS[1], '-', '+')
if #entries == 0 then
  return 0
end
local info = redis.call('XINFO', 'STREAM', KEYS[1])
local last
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then
    last = info[i + 1]
  end
end
local ttl = redis.call('PTTL', KEYS[1])
redis.call('DEL', KEYS[1])
for _, entry in ipairs(entries) do
  redis.call('XADD', KEYS[1], entry[1], unpack(entry[2]))
end
redis.call('XSETID', KEYS[1], last)
if ttl > 0 then
  redis.call('PEXPIRE', KEYS[1], ttl)
end
return #entries
"""
"""For streams without groups only: groups would be lost with the key."""


@dataclass(frozen=True)
class PurgeTargets:
    """Documents to purge from a project.

    ``before`` maps each document to the (position, partition) below which its changes are purged.
    If it is None, the whole project is purged, up to ``until``: the position of the first change
    that stays.
    """

    project: str
    before: Mapping[DocumentKey, LogPosition] | None = None
    until: int = 2**63

    def change(self, raw: bytes, log_position: LogPosition) -> bool:
        """Return whether an event at a place (position, partition) writes such a document."""
        data = _data(raw)
        if data is None:
            return self._mentions(raw)
        limit = self._limit(data)
        return limit is not None and log_position < limit

    def letter(self, raw: bytes) -> bool:
        """Return whether a dead letter's event is about such a document."""
        data = _data(raw)
        return self._mentions(raw) if data is None else self._limit(data) is not None

    def outcome(self, raw: bytes) -> bool:
        """Return whether an outcome may quote such a document: only rejections quote it."""
        if b'"%b"' % DocumentRejected.TYPE.encode() not in raw:
            return False
        data = _data(raw)
        return data is not None and data.get("project") == self.project and self._is_uri(data)

    def reply(self, raw: bytes) -> bool:
        """Return whether an answer cites such a document."""
        data = _data(raw)
        if data is None or b'"%b"' % QueryAnswered.TYPE.encode() not in raw:
            return False
        results = data.get("results")
        return data.get("project") == self.project and any(
            self._is_uri(result.get("citation") or {}) for result in results or ()
        )

    def record(self, raw: bytes | None) -> bool:
        """Return whether the record of an answer is of the project: any question may quote it."""
        record = AnswerRecord.from_bytes(raw)
        return record is not None and record.project == self.project

    def _limit(self, data: Mapping[str, Any]) -> LogPosition | None:
        if data.get("project") != self.project:
            return None
        if self.before is None:
            return LogPosition(self.until, 0)
        return self.before.get(DocumentKey(str(data.get("agent") or ""), str(data.get("uri"))))

    def _is_uri(self, data: Mapping[str, Any]) -> bool:
        """Compare by uri alone, because outcomes and answers don't name the agent."""
        return self.before is None or any(uri == data.get("uri") for _, uri in self.before)

    def _mentions(self, raw: bytes) -> bool:
        """Search bytes that are not JSON: removing too much is better than leaving text behind."""
        uris = [self.project] if self.before is None else [uri for _, uri in self.before]
        return self.project.encode() in raw and any(uri.encode() in raw for uri in uris)


@dataclass(slots=True)
class PurgedStreams:
    """Number of deleted entries by kind. ``needed``: content hashes that remaining changes use.

    ``crowded``: streams that still hold bytes of deleted entries, because entries in the same nodes
    wait.
    """

    changes: int = 0
    letters: int = 0
    outcomes: int = 0
    replies: int = 0
    needed: set[str] = field(default_factory=set)
    crowded: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.changes} changes, {self.letters} dead letters, "
            f"{self.outcomes} outcomes, {self.replies} answers"
        )


async def require_rights(redis: Redis, names: Names) -> None:
    """Check, before anything is deleted, that our user may delete entries of the log.

    Raises:
        ConfigurationError: it may not; the users of the roles never may.
        Unavailable: Redis can't be reached.
    """
    try:
        with redis_errors():
            await redis.xdel(names.stream(Topic.CHANGED_LIVE), "0-1")
            await redis.scan(count=1)
            await redis.hincrby(names.trimmed(0), Lane.LIVE, 0)
    except ConfigurationError as error:
        raise ConfigurationError(
            "this command deletes entries of the log, which no role of Redis may do "
            f"({error.message})",
            "name its administrator in HEADRACE_REDIS_URL for this command",
        ) from error


class StreamPurge:
    """Purges the streams of a deployment. Its methods raise Unavailable if Redis is unreachable."""

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._names = names

    async def purge(self, targets: PurgeTargets, patience: timedelta) -> PurgedStreams:
        """Delete entries, and free the nodes that held them as far as ``patience`` allows.

        Changes must be indexed and archived up to the purge, because all of them are trimmed from
        the streams.
        """
        done = PurgedStreams()
        await self._delete(targets, done)
        topics = [*map(Topic.of_lane, Lane), Topic.QUERY]
        for topic, partition in product(topics, range(self._names.partitions)):
            if not await self._free(topic, partition, patience):
                done.crowded.append(self._names.stream(topic, partition))
        return done

    async def delete(self, targets: PurgeTargets) -> int:
        """Delete entries without waiting until their memory is freed; return their number."""
        done = PurgedStreams()
        await self._delete(targets, done)
        return done.changes + done.letters + done.outcomes + done.replies

    async def _delete(self, targets: PurgeTargets, done: PurgedStreams) -> None:
        for lane, partition in product(Lane, range(self._names.partitions)):
            await self._changes(lane, partition, targets, done)
        for topic, partition in product(GROUPS, range(self._names.partitions)):
            done.letters += await self._rewrite(self._names.dead(topic, partition), targets.letter)
        for partition in range(self._names.partitions):
            key = self._names.stream(Topic.OUTCOME, partition)
            done.outcomes += await self._rewrite(key, targets.outcome)
            pattern = self._names.replies("*", partition)
            with redis_errors():
                keys = [key async for key in self._redis.scan_iter(_literal(pattern), count=1_000)]
            for key in keys:
                done.replies += await self._rewrite(key.decode(), targets.reply)
            await self._forget_records(partition, targets)

    async def _forget_records(self, partition: int, targets: PurgeTargets) -> None:
        """Empty the records of answers; each key stays, so that its query keeps its one reply."""
        pattern = _literal(self._names.replied("*", partition))
        with redis_errors():
            async for key in self._redis.scan_iter(pattern, count=1_000):
                raw: Any = await self._redis.get(key)
                if targets.record(raw):
                    await self._redis.set(key, b"", xx=True, keepttl=True)

    async def count(self, targets: PurgeTargets) -> int:
        """Count the changes and dead letters that are left."""
        left = 0
        for lane, partition in product(Lane, range(self._names.partitions)):
            key = self._names.stream(Topic.of_lane(lane), partition)
            async for entry in self._entries(key):
                left += _is_target(targets, lane, partition, entry)
        for topic, partition in product(GROUPS, range(self._names.partitions)):
            async for entry in self._entries(self._names.dead(topic, partition)):
                left += targets.letter(entry.fields.get(b"event", b""))
        return left

    async def _changes(
        self,
        lane: Lane,
        partition: int,
        targets: PurgeTargets,
        done: PurgedStreams,
    ) -> None:
        key = self._names.stream(Topic.of_lane(lane), partition)
        ids = []
        async for entry in self._entries(key):
            if _is_target(targets, lane, partition, entry):
                ids.append(entry.id)
            else:
                done.needed |= referred(entry.fields.get(b"event", b""))
        for start in range(0, len(ids), _PAGE):
            with redis_errors():
                await self._redis.xdel(key, *ids[start : start + _PAGE])
                await self._redis.hincrby(
                    self._names.trimmed(partition), lane, len(ids[start : start + _PAGE])
                )
        done.changes += len(ids)

    async def _free(self, topic: Topic, partition: int, patience: timedelta) -> bool:
        """Trim the entries that all groups have handled, until no node can hold a deleted entry.

        Every stream is trimmed, since an earlier purge may have been interrupted. Streams of
        questions are trimmed too, because a question may quote a purged document.
        """
        key = self._names.stream(topic, partition)
        with redis_errors():
            if not await self._redis.exists(key):
                return True
            info: Any = await self._redis.xinfo_stream(key)
        after = info["last-generated-id"].decode()
        followers = 0
        deadline = monotonic() + patience.total_seconds()
        while True:
            async for entry in self._entries(key, after):
                followers += 1
                after = entry.id
            left = await trim_handled(self._redis, self._names, topic, partition)
            if not left or followers - left >= _NODE_ENTRIES:
                return True
            if monotonic() > deadline:
                return False
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _rewrite(self, key: str, is_target: Callable[[bytes], bool]) -> int:
        """Delete entries of a stream without groups, and write the others again."""
        ids = [
            entry.id
            async for entry in self._entries(key)
            if is_target(entry.fields.get(b"event", b""))
        ]
        for start in range(0, len(ids), _PAGE):
            client: Any = self._redis
            with redis_errors():
                await client.eval(_REWRITE, 1, key, *ids[start : start + _PAGE])
        return len(ids)

    async def _entries(self, key: str, after: str = "0-0") -> AsyncIterator[Entry]:
        while True:
            with redis_errors():
                page: Sequence[Entry] = entries_of(
                    await self._redis.xrange(key, min=f"({after}", count=_PAGE)
                )
            for entry in page:
                yield entry
            if not page:
                return
            after = page[-1].id


def _is_target(targets: PurgeTargets, lane: Lane, partition: int, entry: Entry) -> bool:
    try:
        own = LogPosition.of_entry(lane, partition, entry.id)
    except MalformedEvent:
        own = LogPosition(0, partition)  # no change has this id, so no limit protects its text
    try:
        position = kept_position(entry.fields, own)
    except MalformedEvent:
        position = own.position
    return targets.change(entry.fields.get(b"event", b""), LogPosition(position, partition))


def referred(raw: bytes) -> set[str]:
    """Return the hash in hex of the content that an event refers to; empty if it has none."""
    data = _data(raw) or {}
    reference = data.get("content_ref")
    return {str(reference.get("sha256"))} if isinstance(reference, dict) else set()


def _data(raw: bytes) -> dict[str, Any] | None:
    """Return the data of an event, or None if the bytes are not an event."""
    try:
        data = json.loads(raw)["data"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _literal(pattern: str) -> str:
    """Escape a pattern of keys, so that only the ``*`` at its end is a wildcard."""
    escaped = re.sub(r"([*?\[\]^\\])", r"\\\1", pattern[:-1])
    return f"{escaped}*"
