"""Records of answers in Redis, by which judgements of their results are checked.

Each answer leaves a record for ``JUDGEABLE``: the question as it was searched, and the place of
each result. A judgement names a query and a chunk only, so an asker can neither judge the question
of another agent nor make up a result.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Self

from redis.asyncio import Redis

from events.models import Query, QueryAnswer
from events.names import Names
from events.server.connection import redis_errors

__all__ = ["JUDGEABLE", "AnswerRecord", "AnswerRecords", "JudgedPassage"]

JUDGEABLE = timedelta(hours=1)
"""Time after an answer in which its results can be judged."""

_FASTEST = 1
_NO_RECORD = (b"", b"1")
"""Values of the key of a query whose answer can't be judged; earlier workers wrote the second."""


class JudgedPassage(NamedTuple):
    """Place of a result: uri and lines, which count from 1, and its rank in the answer."""

    uri: str
    start_line: int
    end_line: int
    rank: int


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """A question as it was searched, with the results that it got, as (chunk ids, uri, lines)."""

    project: str
    agent: str | None
    text: str
    mode: str
    filters: Mapping[str, Any]
    results: Sequence[tuple[Sequence[int], str, int, int]]

    @classmethod
    def of(cls, query: Query, answer: QueryAnswer) -> Self:
        """Create from a question, without operators in its text, and its answer."""
        return cls(
            project=query.project,
            agent=query.agent,
            text=query.text,
            mode=query.mode,
            filters=query.filters.model_dump(mode="json", exclude_defaults=True),
            results=[
                (
                    result.chunk_ids or (result.chunk_id,),
                    result.citation.uri,
                    result.citation.start_line,
                    result.citation.end_line,
                )
                for result in answer.results
            ],
        )

    def passage(self, chunk_id: int) -> JudgedPassage | None:
        """Return the result that contains a chunk; None if the answer has none."""
        for rank, (chunk_ids, uri, start_line, end_line) in enumerate(self.results, start=1):
            if chunk_id in chunk_ids:
                return JudgedPassage(uri, start_line, end_line, rank)
        return None

    def to_bytes(self) -> bytes:
        """Serialize; it is compressed, because every answer leaves one."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return zlib.compress(json.dumps(fields, separators=(",", ":")).encode(), _FASTEST)

    @classmethod
    def from_bytes(cls, raw: bytes | None) -> Self | None:
        """Inverse of ``to_bytes``; None for a query whose answer left no record."""
        if raw in (None, *_NO_RECORD):
            return None
        return cls(**json.loads(zlib.decompress(raw)))


class AnswerRecords:
    """Reads the records of answers."""

    def __init__(self, redis: Redis, names: Names) -> None:
        self._redis = redis
        self._names = names

    async def read(self, query_ids: Sequence[str]) -> list[AnswerRecord | None]:
        """Return the record of each query, or None where the answer can't be judged any more.

        Raises:
            Unavailable: Redis can't be reached.
        """
        keys = [
            (n, self._names.replied(query_id, partition))
            for n, query_id in enumerate(query_ids)
            for partition in self._names.query_partitions(query_id)
        ]
        with redis_errors():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for _, key in keys:
                    pipeline.get(key)
                replies = await pipeline.execute()
        values: list[bytes | None] = [None] * len(query_ids)
        for (n, _), reply in zip(keys, replies, strict=True):
            values[n] = values[n] or reply
        return [AnswerRecord.from_bytes(value) for value in values]
