"""Lua scripts of a raise of the number of partitions; see ``events.partitions``."""

from __future__ import annotations

from pydantic import BaseModel

from events.names import Lane, Names, Topic
from events.server.scripts import Script
from events.streams.entries import order

__all__ = ["MoveBehind", "NoteNumber", "ReplaceStamp"]


class NoteNumber(Script):
    """Note in a partition by which number publishers must choose, and read its last entry id.

    Both are one step: a change is either before that id, or refused. A higher number stays.
    """

    LUA = """
    if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then
      redis.call('SET', KEYS[1], ARGV[1])
    end
    local ids = {}
    for i = 2, 3 do
      ids[i - 1] = '0-0'
      if redis.call('EXISTS', KEYS[i]) == 1 then
        local fields = redis.call('XINFO', 'STREAM', KEYS[i])
        for n = 1, #fields, 2 do
          if fields[n] == 'last-generated-id' then ids[i - 1] = fields[n + 1] end
        end
      end
    end
    return ids
    """

    async def __call__(self, names: Names, partition: int, number: int) -> str:
        """Return the greater last entry id of the partition's lanes; "0-0" if they are empty."""
        streams = [names.stream(Topic.of_lane(lane), partition) for lane in Lane]
        ids = await self._run([names.number_key(partition), *streams], [number])
        return max((str(entry_id, "ascii") for entry_id in ids), key=order)


class MoveBehind(Script):
    """Move the last id of a stream to an id, unless it is behind it already; create the stream."""

    LUA = """
    redis.replicate_commands()
    redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
    local fields, last = redis.call('XINFO', 'STREAM', KEYS[1]), '0-0'
    for n = 1, #fields, 2 do
      if fields[n] == 'last-generated-id' then last = fields[n + 1] end
    end
    local milliseconds, sequence = string.match(last, '(%d+)%-(%d+)')
    local goal, following = string.match(ARGV[2], '(%d+)%-(%d+)')
    local behind = tonumber(milliseconds) - tonumber(goal)
    if behind < 0 or behind == 0 and tonumber(sequence) < tonumber(following) then
      redis.call('XSETID', KEYS[1], ARGV[2])
    end
    """

    async def __call__(self, stream: str, group: str, entry_id: str) -> None:
        """Move the stream, whose entries ``group`` reads."""
        await self._run([stream], [group, entry_id])


class ReplaceStamp(Script):
    """Replace the stamp of a deployment, if it is the expected one."""

    LUA = """
    if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
    redis.call('SET', KEYS[1], ARGV[2])
    return 1
    """

    async def __call__(self, key: str, expected: bytes, stamp: BaseModel) -> bool:
        """Return whether the stamp was replaced."""
        replaced = await self._run([key], [expected, stamp.model_dump_json()])
        return bool(replaced)
