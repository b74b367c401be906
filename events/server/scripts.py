"""All Lua scripts, each as a class with a typed call.

The keys of one script share a hash tag, so that each runs on a Redis Cluster too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.exceptions import NoScriptError

from events.names import LogPosition
from events.streams.entries import preceding
from runtime.errors import MalformedEvent

__all__ = [
    "AcquireRequest",
    "ForgetConsumers",
    "HoldBack",
    "MoveOn",
    "NoteTokens",
    "Present",
    "PublishOnce",
    "Redrive",
    "ReplyOnce",
    "Republish",
    "Script",
    "SpendAllowance",
]


class Script:
    """A script called by its digest; its text is sent if the server has not loaded it."""

    LUA: ClassVar[str]

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._digest = hashlib.sha1(self.LUA.encode(), usedforsecurity=False).hexdigest()

    async def load(self) -> None:
        """Load the script into the server, for calls that are queued."""
        await self._redis.script_load(self.LUA)

    def queue_load(self, pipeline: Pipeline) -> None:
        """Queue loading the script into the server, before calls that are queued behind it."""
        pipeline.script_load(self.LUA)

    async def _run(self, keys: list[str], arguments: list[str | int | bytes]) -> Any:
        try:
            return await self._redis.evalsha(self._digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._redis.eval(self.LUA, len(keys), *keys, *arguments)

    def _queue(
        self, pipeline: Pipeline, keys: list[str], arguments: list[str | int | bytes]
    ) -> None:
        pipeline.evalsha(self._digest, len(keys), *keys, *arguments)


class PublishOnce(Script):
    """Add an event to a stream, unless its id was published before.

    A reply is ``[token, state]``: the token of the entry that holds the event, and ``ADDED``,
    ``DUPLICATE`` if that entry existed already, or ``REUSED`` if the id was published with another
    change. The state is ``RAISED``, and nothing was added, if publishers must choose by another
    number of partitions; the reply has that number then.

    The record of an event has up to three parts with blanks in between: its token, the id of the
    entry that holds it, if that is another one (``Republish``), and the fingerprint of the change,
    which older publishers leave out. Any publisher may write other bytes there; these are ignored.
    """

    ADDED, DUPLICATE, REUSED, RAISED = range(4)

    LUA = """
    local seen = redis.call('GET', KEYS[2])
    local token = seen and string.match(seen .. ' ', '^(%l+:%d+:%d+%-%d+) ')
    if token then
      local former = string.match(seen, ' ([%w+/]+)$')
      local is_other = former and #former == #ARGV[5] and former ~= ARGV[5]
      return {token, is_other and 2 or 1}
    end
    local number = redis.call('GET', KEYS[3])
    if number and number ~= ARGV[6] then
      return {number, 3}
    end
    local entry = {'event', ARGV[1]}
    if ARGV[4] ~= '' then
      entry[3], entry[4] = 'signature', ARGV[4]
    end
    token = ARGV[2] .. redis.call('XADD', KEYS[1], '*', unpack(entry))
    redis.call('SET', KEYS[2], token .. ' ' .. ARGV[5], 'PX', ARGV[3])
    return {token, 0}
    """

    def queue(
        self,
        pipeline: Pipeline,
        *,
        stream: str,
        seen: str,
        number_key: str,
        event: bytes,
        signature: str,
        fingerprint: str,
        token_prefix: str,
        remember: timedelta,
        number: int,
    ) -> None:
        """Queue one call; ``number``: partitions by which the stream was chosen.

        After a reply of NoScriptError, call ``load`` and queue it again.
        """
        arguments: list[str | int | bytes] = [
            event,
            token_prefix,
            _milliseconds(remember),
            signature,
            fingerprint,
            number,
        ]
        self._queue(pipeline, [stream, seen, number_key], arguments)


class Present(Script):
    """Check which entries exist in a stream of changes: the reply is 1 or 0 for each id.

    A user who may not read ranges may read on from the preceding id: Redis 6.2 allows a publisher
    to do so.
    """

    LUA = """
    local found = {}
    for i = 1, #ARGV, 2 do
      local entries = redis.pcall('XRANGE', KEYS[1], ARGV[i], ARGV[i])
      if entries.err then
        local read = redis.call('XREAD', 'COUNT', 1, 'STREAMS', KEYS[1], ARGV[i + 1])
        entries = read and read[1][2] or {}
      end
      found[#found + 1] = entries[1] and entries[1][1] == ARGV[i] and 1 or 0
    end
    return found
    """

    async def __call__(self, stream: str, entry_ids: Sequence[str]) -> list[bool]:
        """Check at most 1,000 ids.

        Raises:
            ResponseError: the user may not read the stream.
        """
        arguments: list[str | int | bytes] = []
        for entry_id in entry_ids:
            arguments += [entry_id, preceding(entry_id)]
        return [bool(flag) for flag in await self._run([stream], arguments)]


class MoveOn(Script):
    """Move the last id of a stream forward if it is behind, and add unacknowledged entries again.

    The reply is the number of entries that were added, or -1 if the stream is not behind. Without a
    goal nothing is written.
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
    if ARGV[3] == '' then return 0 end
    local skipped = {}
    for index = 4, #ARGV do skipped[ARGV[index]] = true end
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
    local copied = 0
    for _, entry in ipairs(waiting) do
      if not skipped[entry[1]] then
        redis.call('XADD', KEYS[1], '*', unpack(entry[2]))
        copied = copied + 1
      end
    end
    return copied
    """

    async def is_behind(self, stream: str, *, group: str, handled: str) -> bool:
        """Return whether the stream ends before ``handled``, an entry id.

        Raises:
            redis.exceptions.RedisError: Redis failed.
        """
        return int(await self._run([stream], [group, handled, ""])) >= 0

    async def __call__(
        self, stream: str, *, group: str, handled: str, goal: str, skip: Collection[str] = ()
    ) -> int | None:
        """Return the number of entries added, or None if the stream reaches ``handled``.

        ``handled`` is an entry id. ``goal`` is the entry id to move to, not before ``handled``. The
        entries with the ids ``skip`` are not added again.

        Raises:
            redis.exceptions.RedisError: Redis failed; nothing was moved.
        """
        copied = int(await self._run([stream], [group, handled, goal, *skip]))
        return None if copied < 0 else copied


class Republish(Script):
    """Add an event again that is missing from its stream, at its former log position.

    Nothing is added while a record of the event exists (other than the record ``in_vain``), nor
    while the entry in which it was published exists. If the position is ahead of the server's
    clock, the event gets a new one: it must not overtake changes that are published later. The
    reply is that of ``PublishOnce``.
    """

    LUA = """
    local seen = redis.call('GET', KEYS[2])
    if seen and seen ~= ARGV[6] then
      return {string.match(seen, '^%S+'), 1}
    end
    local token = ARGV[2] .. ARGV[3]
    local fingerprint = ARGV[9] ~= '' and ' ' .. ARGV[9] or ''
    if not seen then
      local entry = redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3])[1]
      if entry and entry[2][1] == 'event' and entry[2][2] == ARGV[1] then
        redis.call('SET', KEYS[2], token .. fingerprint, 'PX', ARGV[7])
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
    redis.call('SET', KEYS[2], token .. ' ' .. entry_id .. fingerprint, 'PX', ARGV[7])
    return {token, 0}
    """

    async def __call__(
        self,
        *,
        stream: str,
        seen: str,
        event: bytes,
        signature: str,
        fingerprint: str,
        position: LogPosition,
        in_vain: bytes,
        remember: timedelta,
    ) -> tuple[str, bool]:
        """Return the event's token, and whether it existed already.

        ``fingerprint`` is empty if the event is not a valid change.
        """
        arguments: list[str | int | bytes] = [
            event,
            position.token.removesuffix(position.entry_id),
            position.entry_id,
            position.entry_id.partition("-")[0],
            position.position,
            in_vain,
            _milliseconds(remember),
            signature,
            fingerprint,
        ]
        token, duplicate = await self._run([stream, seen], arguments)
        return token.decode(), bool(duplicate)


class ReplyOnce(Script):
    """Add the terminal reply to a query and acknowledge the query, unless it has its reply.

    It is one step: if a worker dies, the query is either unanswered and pending, or answered and
    acknowledged. The reply is added even if Redis is full: a script that has begun to write may
    continue, and the first XACK is a write that changes nothing.
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
      redis.call('SET', KEYS[2], ARGV[6], 'PX', ARGV[7])
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
        record: bytes,
        keep_record: timedelta,
    ) -> bool:
        """Return True if this was the first reply. ``record`` is the value of the key ``replied``.

        Raises:
            MalformedEvent: ``reply_stream`` is a key of another kind.
        """
        keys = [reply_stream, replied, query_stream]
        arguments: list[str | int | bytes] = [
            event,
            group,
            entry_id,
            _milliseconds(keep),
            keep_replies,
            record,
            _milliseconds(keep_record),
        ]
        sent = await self._run(keys, arguments)
        if sent < 0:
            raise MalformedEvent(f"reply_to {reply_stream!r} is a key that is not a stream")
        return bool(sent)


class Redrive(Script):
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
        """Return the event's new entry id, or None if the letter does not exist."""
        entry_id = await self._run([dead_stream, stream], [dead_entry_id])
        return None if entry_id is None else entry_id.decode()


class ForgetConsumers(Script):
    """Remove consumers from a group that were silent for long and have nothing pending.

    It is one step, because deleting a consumer drops its pending entries.
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
        """Return the number of consumers removed."""
        return int(await self._run([stream], [group, _milliseconds(silent_for)]))


class AcquireRequest(Script):
    """Acquire a request and its tokens from a provider's rate limit, or return the time to wait.

    The generic cell rate algorithm (ITU-T I.371): the only state of a limit is the time when it
    will have been worked off. A tenth of a minute's worth may be sent at once, and the rest is
    restored so slowly that no minute ever exceeds the limit. A caller that is not urgent leaves a
    fifth of that tenth.
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
        """Return the time to wait; zero if the request was acquired.

        Args:
            held: key that exists while no request may be sent to the provider.
            requests: key of the limit of requests.
            tokens: key of the limit of tokens.
            share: usable share of the burst, 0 to 1.
            count: tokens of the request.
            requests_per_minute: limit; 0 means none.
            tokens_per_minute: limit; 0 means none.
        """
        arguments: list[str | int | bytes] = [str(share), 1, requests_per_minute]
        wait = await self._run([held, requests, tokens], [*arguments, count, tokens_per_minute])
        return timedelta(milliseconds=int(wait))


class HoldBack(Script):
    """Stop all requests to a provider for a while; the longest requested hold wins."""

    LUA = """
    if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then
      redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
    end
    return 1
    """

    async def __call__(self, held: str, wait: timedelta) -> None:
        """Hold all callers back for ``wait``, counted from now."""
        await self._run([held], [max(1, _milliseconds(wait))])


class NoteTokens(Script):
    """Add tokens to a text with blanks in between, unless it has them; it is kept for a while.

    A role that may only get and set the key can run this.
    """

    LUA = """
    local tokens, noted = {}, {}
    for token in string.gmatch(redis.call('GET', KEYS[1]) or '', '%S+') do
      tokens[#tokens + 1], noted[token] = token, true
    end
    for i = 2, #ARGV do
      if not noted[ARGV[i]] then
        tokens[#tokens + 1], noted[ARGV[i]] = ARGV[i], true
      end
    end
    redis.call('SET', KEYS[1], table.concat(tokens, ' '), 'PX', ARGV[1])
    """

    async def __call__(self, key: str, tokens: Sequence[str], keep: timedelta) -> None:
        """Add tokens to the text of a key, and keep it for ``keep`` from now on."""
        await self._run([key], [_milliseconds(keep), *tokens])


class SpendAllowance(Script):
    """Spend units of a limit per minute, or return the time to wait.

    A token bucket that holds a minute's worth and is refilled evenly. As for
    ``AcquireRequest``, the only state is a time: that when the bucket will be full. More units than
    the bucket holds can be spent when it is full; the rest is owed.
    """

    LUA = """
    local units, limit, way = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
    local time = redis.call('TIME')
    local now = time[1] * 1000 + time[2] / 1000
    local each = 60000 / limit
    local full_at = math.max(now, tonumber(redis.call('GET', KEYS[1]) or 0))
    local wait = math.max(0, full_at + math.min(units * each, 60000) - now - 60000)
    if way == 'charge' then
      full_at, wait = math.min(full_at + units * each, now + 60000), 0
    elseif way == 'spend' and wait == 0 then
      full_at = full_at + units * each
    end
    if way ~= 'check' and wait == 0 then
      redis.call('SET', KEYS[1], string.format('%.3f', full_at), 'PX', math.ceil(full_at - now) + 1)
    end
    local rest = math.max(0, math.floor((now + 60000 - full_at) / each + 0.001))
    return {math.ceil(wait), rest, math.ceil(full_at - now)}
    """

    async def __call__(
        self, key: str, units: int, per_minute: int, way: Literal["spend", "check", "charge"]
    ) -> tuple[timedelta, int, timedelta]:
        """Return the time to wait, the units that are left, and the time until all are restored.

        The time to wait is zero if the units were spent. ``check`` spends none. ``charge`` never
        waits: it empties the bucket at most. ``per_minute`` is at least 1.
        """
        wait, rest, reset = await self._run([key], [units, per_minute, way])
        return timedelta(milliseconds=int(wait)), int(rest), timedelta(milliseconds=int(reset))


def _milliseconds(duration: timedelta) -> int:
    return int(duration.total_seconds() * 1000)
