"""Changes that were published: those that gateways have accepted, and those of an event id.

A gateway may not read the log. So it notes the tokens of the changes that it accepts, and finds all
others by the record of their event id, which every publisher keeps to publish an event once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis

from events.client.publisher import REMEMBER
from events.names import LogPosition, Names
from events.server.connection import redis_errors
from events.server.scripts import NoteTokens
from events.streams.entries import order
from runtime.errors import MalformedEvent

__all__ = ["AcceptedChanges"]

_GROUP_MILLISECONDS = 100
"""Tokens of one project are kept together by this time, so that few keys hold many tokens."""


class AcceptedChanges:
    """Tokens of accepted changes by project, for 24 hours; all gateways share them."""

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._names = names
        self._note = NoteTokens(redis)

    async def add(self, project: str, tokens: Iterable[str]) -> None:
        """Note changes that were published; noting them again changes nothing.

        Raises:
            Unavailable: Redis can't be reached.
            ConfigurationError: the user of Redis is not that of a gateway.
        """
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for token in tokens:
            groups[self._key(project, token)].append(token)
        with redis_errors():
            for key, group in groups.items():
                await self._note(key, group, REMEMBER)

    async def has(self, project: str, token: str) -> bool:
        """Return whether a change was noted for this project; raises as ``add``.

        Raises:
            MalformedEvent: the text is not a token.
        """
        with redis_errors():
            text: Any = await self._redis.get(self._key(project, token))
        return text is not None and token.encode() in text.split()

    async def tokens_of(self, project: str, event_id: str) -> list[str]:
        """Tokens of the changes that any publisher published under an event id in 24 hours.

        There are several if the id was used for documents of several partitions. Signed changes are
        absent: only their publisher can name the records of their ids.

        Raises:
            Unavailable: Redis can't be reached.
        """
        keys = [
            self._names.seen(project, event_id, partition)
            for partition in range(self._names.partitions)
        ]
        with redis_errors():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for key in keys:
                    pipeline.get(key)
                records: list[bytes | None] = await pipeline.execute()
        return [token for record in records if record and (token := _token(record))]

    def _key(self, project: str, token: str) -> str:
        milliseconds, _ = order(LogPosition.from_token(token).entry_id)
        return self._names.gateway(f"{project}.{milliseconds // _GROUP_MILLISECONDS}", "accepted")


def _token(record: bytes) -> str | None:
    """Token in the record of an event id; None for other bytes, which any publisher may write."""
    token = record.partition(b" ")[0].decode(errors="replace")
    with suppress(MalformedEvent):
        return LogPosition.from_token(token).token
    return None
