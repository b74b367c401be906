"""Sending of events to the partitions of their documents, also while their number is raised."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from events.deployment import follow_stamp
from events.names import LogPosition, Names, Topic
from events.outbox import KeptEvent
from events.partitions import former_numbers
from events.server.connection import retrying
from events.server.scripts import PublishOnce
from runtime.errors import MalformedEvent, Unavailable

__all__ = ["REMEMBER", "Reply", "Sender", "Trace", "read_traces"]

REMEMBER = timedelta(hours=24)
"""Time for which an event id counts as published."""

_RAISE_SECONDS = 0.05
"""Pause between two looks at a raise of the number of partitions, which takes milliseconds."""

_RECORD = re.compile(r"(\S+)(?: ([0-9]+-[0-9]+))?(?: ([A-Za-z0-9+/]{16}))?")

Reply = tuple[bytes, int]
"""Token and state, as of ``PublishOnce``."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Redis' record of an event: its token and the token of the entry that holds it.

    ``raw`` is empty for an event without a record. The other fields are None then, and also if the
    record can't be parsed. ``fingerprint`` is also None if an older publisher wrote the record.
    """

    raw: bytes = b""
    token: str | None = None
    entry: str | None = None
    fingerprint: str | None = None

    @classmethod
    def parse(cls, raw: bytes | None) -> Trace:
        """Parse the record that publishing wrote; any publisher may have written something else."""
        if raw is None:
            return cls()
        record = _RECORD.fullmatch(raw.decode(errors="replace"))
        if record is None:
            return cls(raw)
        token, entry_id, fingerprint = record.groups()
        entry = token.rpartition(":")[0] + f":{entry_id}" if entry_id else token
        try:
            for text in (token, entry):
                LogPosition.from_token(text)
        except MalformedEvent:
            return cls(raw)
        return cls(raw, token, entry, fingerprint)

    def is_of_other(self, fingerprint: str) -> bool:
        """Return whether the record is known to be of another change than that of ``fingerprint``.

        An empty ``fingerprint``, of an event that is not a change, can't be compared.
        """
        return bool(fingerprint) and self.fingerprint not in {None, fingerprint}


async def read_traces(redis: Redis, keys: Sequence[str]) -> list[Trace]:
    """Read the records of events, in the order of the keys of ``Names.seen``.

    Raises:
        RedisError: Redis can't be reached.
    """
    async with redis.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.get(key)
        return [Trace.parse(raw) for raw in await pipeline.execute()]


class Sender:
    """Sends events, each once within 24 hours, to the partitions of their documents."""

    def __init__(self, redis: Redis, names: Names, patience: timedelta) -> None:
        self._redis = redis
        self._names = names
        self._patience = patience
        self._script = PublishOnce(redis)

    async def replies(self, chunk: Sequence[KeptEvent]) -> list[Reply]:
        """Publish events until none is refused because the number of partitions was raised."""
        replies: dict[int, Reply] = {}
        deadline = time.monotonic() + self._patience.total_seconds()
        while True:
            rest = {n: self._routed(event) for n, event in enumerate(chunk) if n not in replies}
            replies |= await self._published_before(rest)
            new = {n: event for n, event in rest.items() if n not in replies}
            sent = await retrying(partial(self._send, list(new.values())), self._patience)
            replies |= {
                n: reply
                for n, reply in zip(new, sent, strict=True)
                if reply[1] != PublishOnce.RAISED
            }
            if len(replies) == len(chunk):
                return [replies[n] for n in range(len(chunk))]
            await self._follow_raise(deadline)

    def _routed(self, event: KeptEvent) -> KeptEvent:
        """Return the event with its partition by the present number."""
        number = self._names.chosen_from
        if event.number == number:
            return event
        partition = self._names.partition_of(event.project, event.uri)
        return replace(event, partition=partition, number=number)

    async def _published_before(self, events: Mapping[int, KeptEvent]) -> dict[int, Reply]:
        """Return the replies of events that are remembered in a former partition."""
        now_ms = int(time.time() * 1000)
        numbers = former_numbers(self._names.raises, now_ms, REMEMBER)
        former = [
            (n, replace(event, partition=partition))
            for n, event in events.items()
            for number in numbers
            if (partition := self._names.partition_of(event.project, event.uri, number))
            != event.partition
        ]
        if not former:
            return {}
        keys = [self._seen(event) for _, event in former]
        traces = await retrying(partial(read_traces, self._redis, keys), self._patience)
        replies: dict[int, Reply] = {}
        for (n, event), trace in zip(former, traces, strict=True):
            if trace.token is not None:
                is_other = trace.is_of_other(event.fingerprint)
                state = PublishOnce.REUSED if is_other else PublishOnce.DUPLICATE
                replies[n] = trace.token.encode(), state
        return replies

    async def _follow_raise(self, deadline: float) -> None:
        """Wait until publishers choose by another number of partitions.

        Raises:
            Unavailable: no worker has completed the raise for as long as ``patience``.
        """
        number = self._names.chosen_from
        while True:
            await retrying(partial(follow_stamp, self._redis, self._names), self._patience)
            if self._names.chosen_from != number:
                return
            if time.monotonic() > deadline:
                raise Unavailable(
                    "the number of partitions is being raised, and no worker completes it",
                    "check that workers run",
                )
            await asyncio.sleep(_RAISE_SECONDS)

    async def _send(self, chunk: Sequence[KeptEvent]) -> list[Any]:
        if not chunk:
            return []
        replies = await self._call(chunk)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            await self._script.load()
            replies = await self._call(chunk)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    async def _call(self, chunk: Sequence[KeptEvent]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipeline:
            if len(chunk) > 1:
                # if another client loaded the script while a round trip without it is executed, the
                # first changes would fail, and be published again behind the last ones
                self._script.queue_load(pipeline)
            for outgoing in chunk:
                self._script.queue(
                    pipeline,
                    stream=self._names.stream(Topic.of_lane(outgoing.lane), outgoing.partition),
                    seen=self._seen(outgoing),
                    number_key=self._names.number_key(outgoing.partition),
                    event=outgoing.body,
                    signature=outgoing.signature,
                    fingerprint=outgoing.fingerprint,
                    token_prefix=f"{outgoing.lane}:{outgoing.partition}:",
                    remember=REMEMBER,
                    number=outgoing.number,
                )
            replies: list[Any] = await pipeline.execute(raise_on_error=False)
            return replies[-len(chunk) :]

    def _seen(self, outgoing: KeptEvent) -> str:
        return self._names.seen(
            outgoing.project, outgoing.event_id, outgoing.partition, outgoing.signature
        )
