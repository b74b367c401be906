"""Every Lua script, each as a class with a typed call.

The keys of one script share a hash tag, so that each runs on a Redis Cluster too.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any, ClassVar

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import NoScriptError

from events.names import Position
from runtime.errors import MalformedEvent

__all__ = [
    "ForgetConsumers",
    "HoldBack",
    "MoveOn",
    "PublishOnce",
    "Redrive",
    "ReplyOnce",
    "Republish",
    "TakeTurn",
]


class _Script:
    """A script by its digest; the server gets the text when it doesn't know it."""

    LUA: ClassVar[str]

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._digest = hashlib.sha1(self.LUA.encode(), usedforsecurity=False).hexdigest()

    async def load(self) -> None:
        """Teach the server the script, for calls that are queued."""
        await self._redis.script_load(self.LUA)

    async def _run(self, keys: list[str], arguments: list[str | int | bytes]) -> Any:
        try:
            return await self._redis.evalsha(self._digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._redis.eval(self.LUA, len(keys), *keys, *arguments)

    def _queue(
        self, pipeline: Pipeline, keys: list[str], arguments: list[str | int | bytes]
    ) -> None:
        pipeline.evalsha(self._digest, len(keys), *keys, *arguments)


class PublishOnce(_Script):
    """Add an event to a stream, unless its id was published before.

    A reply is ``[token, duplicate]``: the token of the entry that holds the event, and 1 when
    that entry was there already. What is remembered of an event is its token, and behind a blank
    the entry that holds it, where that is another one (``Republish``). Every publisher may write
    something else there: that counts for nothing.
    """

    LUA = """
    local seen = redis.call('GET', KEYS[2])
    local token = seen and string.match(seen .. ' ', '^(%l+:%d+:%d+%-%d+) ')
    if token then
      return {token, 1}
    end
    local entry = {'event', ARGV[1]}
    if ARGV[4] ~= '' then
      entry[3], entry[4] = 'signature', ARGV[4]
    end
    token = ARGV[2] .. redis.call('XADD', KEYS[1], '*', unpack(entry))
    redis.call('SET', KEYS[2], token, 'PX', ARGV[3])
    return {token, 0}
    """

    def queue(
        self,
        pipeline: Pipeline,
        *,
        stream: str,
        seen: str,
        event: bytes,
        signature: str,
        token_prefix: str,
        remember: timedelta,
    ) -> None:
        """Queue one call; a reply of NoScriptError asks for ``load`` and the same call again."""
        arguments: list[str | int | bytes] = [
            event,
            token_prefix,
            _milliseconds(remember),
            signature,
        ]
        self._queue(pipeline, [stream, seen], arguments)


class MoveOn(_Script):
    """Move a stream that is behind on, and add what its group hasn't acknowledged once more.

    The reply is the number of entries that were added, or -1 where the stream isn't behind.
    """

    LUA = """
    redis.replicate_commands()
    if redis.call('EXISTS', KEYS[1]) == 0 then return -1 end
    local function is_before(one, other)
      local milliseconds, sequence = string.match(one, '(%d+)%-(%d+)')
      local others, behind = string.match(other, '(%d+)%-(%d+)')
      if milliseconds == others then return tonumber(sequence) < tonumber(behind) end
      return tonumber(milliseconds) < tonumber(others)
    end
    local function field(pairs_of_fields, name)
      for index = 1, #pairs_of_fields, 2 do
        if pairs_of_fields[index] == name then return pairs_of_fields[index + 1] end
      end
    end
    local last = field(redis.call('XINFO', 'STREAM', KEYS[1]), 'last-generated-id')
    if not is_before(last, ARGV[2]) then return -1 end
    local waiting, delivered = {}, '0-0'
    for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
      if field(group, 'name') == ARGV[1] then
        delivered = field(group, 'last-delivered-id')
        local pending = field(group, 'pending')
        if pending > 0 then
          for _, held in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', pending)) do
            local found = redis.call('XRANGE', KEYS[1], held[1], held[1])
            if #found > 0 then waiting[#waiting + 1] = found[1] end
          end
        end
      end
    end
    for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '(' .. delivered, '+')) do
      waiting[#waiting + 1] = entry
    end
    redis.call('XSETID', KEYS[1], ARGV[3])
    for _, entry in ipairs(waiting) do
      redis.call('XADD', KEYS[1], '*', unpack(entry[2]))
    end
    return #waiting
    """

    async def __call__(self, stream: str, *, group: str, handled: str, goal: str) -> int | None:
        """How many entries were added; None: the stream reaches as far as ``handled``, an entry id.

        ``goal``: the entry id to move it to, not before ``handled``.

        Raises:
            redis.exceptions.RedisError: Redis failed; nothing was moved.
        """
        copied = int(await self._run([stream], [group, handled, goal]))
        return None if copied < 0 else copied


class Republish(_Script):
    """Add an event again that was to be in the stream, at the place that it had in the log.

    Nothing is added while the event is remembered (but for what is remembered of it ``in_vain``),
    nor while the entry is there that it was published in. Where the place lies ahead of the
    server's clock, the event gets a new one: nothing may overtake what is published later.
    The reply is that of ``PublishOnce``.
    """

    LUA = """
    local seen = redis.call('GET', KEYS[2])
    if seen and seen ~= ARGV[6] then
      return {string.match(seen, '^%S+'), 1}
    end
    local token = ARGV[2] .. ARGV[3]
    if not seen then
      local entry = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3])[1]
      if entry and entry[2][1] == 'event' and entry[2][2] == ARGV[1] then
        redis.call('SET', KEYS[2], token, 'PX', ARGV[7])
        return {token, 1}
      end
    end
    local added = {'event', ARGV[1]}
    if ARGV[8] ~= '' then
      added[3], added[4] = 'signature', ARGV[8]
    end
    local now = redis.call('TIME')
    local is_past = tonumber(ARGV[4]) < now[1] * 1000 + math.floor(now[2] / 1000)
    if is_past then
      added[#added + 1], added[#added + 2] = 'position', ARGV[5]
    end
    local entry_id = redis.call('XADD', KEYS[1], '*', unpack(added))
    if not is_past then
      token = ARGV[2] .. entry_id
    end
    redis.call('SET', KEYS[2], token .. ' ' .. entry_id, 'PX', ARGV[7])
    return {token, 0}
    """

    async def __call__(
        self,
        *,
        stream: str,
        seen: str,
        event: bytes,
        signature: str,
        place: Position,
        in_vain: bytes,
        remember: timedelta,
    ) -> tuple[str, bool]:
        """The event's token, and whether there was nothing to add."""
        arguments: list[str | int | bytes] = [
            event,
            place.token.removesuffix(place.entry_id),
            place.entry_id,
            place.entry_id.partition("-")[0],
            place.number,
            in_vain,
            _milliseconds(remember),
            signature,
        ]
        token, duplicate = await self._run([stream, seen], arguments)
        return token.decode(), bool(duplicate)


class ReplyOnce(_Script):
    """Add the terminal reply to a query and acknowledge it, unless it has its reply.

    One step, so that a worker that dies can leave a query unanswered and pending or answered and
    acknowledged, and nothing between. Where Redis is full, the reply is added all the same: a
    script that has begun to write may go on, and the first XACK is a write that changes nothing.
    """

    LUA = """
    redis.call('XACK', KEYS[3], ARGV[2], '0-0')
    local replied = 0
    if redis.call('EXISTS', KEYS[2]) == 0 then
      local added = redis.pcall('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], '*', 'event', ARGV[1])
      if type(added) == 'table' and added.err then
        return string.find(added.err, 'WRONGTYPE') and -1 or added
      end
      redis.call('PEXPIRE', KEYS[1], ARGV[4])
      redis.call('SET', KEYS[2], 1, 'PX', ARGV[4])
      replied = 1
    end
    redis.call('XACK', KEYS[3], ARGV[2], ARGV[3])
    return replied
    """

    async def __call__(
        self,
        *,
        reply_stream: str,
        replied: str,
        query_stream: str,
        group: str,
        entry_id: str,
        event: bytes,
        keep: timedelta,
        keep_replies: int,
    ) -> bool:
        """True when this was the first reply.

        Raises:
            MalformedEvent: ``reply_stream`` is a key of another kind.
        """
        keys = [reply_stream, replied, query_stream]
        sent = await self._run(keys, [event, group, entry_id, _milliseconds(keep), keep_replies])
        if sent < 0:
            raise MalformedEvent(f"reply_to {reply_stream!r} holds something that is no stream")
        return bool(sent)


class Redrive(_Script):
    """Move an event from a dead-letter stream back to the end of its own."""

    LUA = """
    local letter = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1]
    if not letter then
      return false
    end
    local fields = {}
    for i = 1, #letter[2], 2 do
      fields[letter[2][i]] = letter[2][i + 1]
    end
    local entry = {'event', fields['event'] or ''}
    for _, name in ipairs({'signature', 'position'}) do
      if fields[name] then
        entry[#entry + 1] = name
        entry[#entry + 1] = fields[name]
      end
    end
    local entry_id = redis.call('XADD', KEYS[2], '*', unpack(entry))
    redis.call('XDEL', KEYS[1], ARGV[1])
    return entry_id
    """

    async def __call__(self, dead_stream: str, stream: str, dead_entry_id: str) -> str | None:
        """The event's new entry id; None when there is no such letter."""
        entry_id = await self._run([dead_stream, stream], [dead_entry_id])
        return None if entry_id is None else entry_id.decode()


class ForgetConsumers(_Script):
    """Take consumers out of a group that are long silent and have nothing pending.

    One step, because deleting a consumer drops what is pending for it.
    """

    LUA = """
    local forgotten = 0
    for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
      local consumer = {}
      for i = 1, #row, 2 do
        consumer[row[i]] = row[i + 1]
      end
      if consumer.pending == 0 and consumer.idle >= tonumber(ARGV[2]) then
        redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], consumer.name)
        forgotten = forgotten + 1
      end
    end
    return forgotten
    """

    async def __call__(self, *, stream: str, group: str, silent_for: timedelta) -> int:
        """How many were taken out."""
        return int(await self._run([stream], [group, _milliseconds(silent_for)]))


class TakeTurn(_Script):
    """Take a request and its tokens out of what a provider allows, or tell how long to wait.

    The generic cell rate algorithm (ITU-T I.371): all that is kept of a limit is when it will have
    been worked off. A tenth of a minute's worth may go at once, and the rest comes back so slowly
    that no minute ever has more than the limit. Who isn't urgent leaves a fifth of that tenth.
    """

    LUA = """
    local held = redis.call('PTTL', KEYS[1])
    if held > 0 then
      return held
    end
    local time = redis.call('TIME')
    local now = time[1] * 1000 + time[2] / 1000
    local wait, taken = 0, {}
    for i = 2, 3 do
      local units, limit = tonumber(ARGV[2 * i - 2]), tonumber(ARGV[2 * i - 1])
      if limit > 0 then
        local burst = math.max(1, math.floor(limit / 10))
        local each = 60000 / (limit - burst + 1)
        local free = math.max(0, burst * tonumber(ARGV[1]) - units) * each
        local done_at = math.max(now, tonumber(redis.call('GET', KEYS[i]) or 0))
        wait = math.max(wait, done_at - now - free)
        taken[#taken + 1] = {KEYS[i], done_at + units * each}
      end
    end
    if wait > 0 then
      return math.ceil(wait)
    end
    for _, one in ipairs(taken) do
      local keep = math.ceil(one[2] - now) + 1000
      redis.call('SET', one[1], string.format('%.3f', one[2]), 'PX', keep)
    end
    return 0
    """

    async def __call__(
        self,
        *,
        held: str,
        requests: str,
        tokens: str,
        share: float,
        count: int,
        requests_per_minute: int,
        tokens_per_minute: int,
    ) -> timedelta:
        """How long to wait; zero: the turn is taken.

        Args:
            held: key that is there while the provider is to be left alone.
            requests: key of the limit of requests.
            tokens: key of the limit of tokens.
            share: of what may go at once that may be used, 0 to 1.
            count: tokens of the request.
            requests_per_minute: 0: no limit.
            tokens_per_minute: 0: no limit.
        """
        arguments: list[str | int | bytes] = [str(share), 1, requests_per_minute]
        wait = await self._run([held, requests, tokens], [*arguments, count, tokens_per_minute])
        return timedelta(milliseconds=int(wait))


class HoldBack(_Script):
    """Leave a provider alone for a while, by all who take turns; the longest wish counts."""

    LUA = """
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then
      redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
    end
    return 1
    """

    async def __call__(self, held: str, wait: timedelta) -> None:
        """Hold everybody back for ``wait``, counted from now."""
        await self._run([held], [max(1, _milliseconds(wait))])


def _milliseconds(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
