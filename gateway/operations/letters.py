"""Dead letters as routes and pages show them: decoded, and redriven or dropped by filter."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from redis.asyncio import Redis

from events.names import Names
from events.streams.dead_letters import DeadLetter, DeadLetters
from events.streams.letter_selection import (
    LetterCount,
    LetterFilter,
    LetterOutcome,
    LetterSelection,
)
from runtime.errors import UsageError

__all__ = ["Letter", "Letters"]

_FIELDS = ("topic", "project", "error")
_Work = Callable[..., Awaitable[list[LetterOutcome]]]


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter. ``event`` is its JSON, or None if it is not JSON; ``raw`` is its text.

    ``project`` and ``uri`` are '' if they can't be read. ``token`` is None if the event is not a
    change.
    """

    id: str
    topic: str
    partition: int
    entry_id: str
    group: str
    error: str
    detail: str
    attempts: int
    first_at: datetime
    last_at: datetime
    project: str
    uri: str
    token: str | None
    event: Any
    raw: str

    @classmethod
    def of(cls, letter: DeadLetter) -> Letter:
        """Decode the event of a letter as far as possible."""
        raw = letter.event.decode(errors="replace")
        try:
            event = json.loads(raw)
        except (ValueError, RecursionError):
            event = None
        return cls(
            id=letter.id,
            topic=letter.topic,
            partition=letter.partition,
            entry_id=letter.entry_id,
            group=letter.group,
            error=letter.error,
            detail=letter.detail,
            attempts=letter.attempts,
            first_at=letter.first_at,
            last_at=letter.last_at,
            project=letter.project,
            uri=_uri(event),
            token=letter.token,
            event=event,
            raw=raw,
        )


class Letters:
    """The dead letters of a deployment; methods raise as ``LetterSelection``."""

    def __init__(self, redis: Redis, names: Names) -> None:
        self._dead = DeadLetters(redis, names)
        self._selection = LetterSelection(redis, names)

    async def page(self, wanted: LetterFilter, before: str | None, limit: int) -> list[Letter]:
        """Return at most ``limit`` letters, newest first, after the letter ``before``."""
        letters = await self._selection.page(wanted, before=before, limit=limit)
        return [Letter.of(letter) for letter in letters]

    async def counts(self) -> list[LetterCount]:
        """Count the letters by topic, error and project; the largest count comes first."""
        return await self._selection.counts()

    async def find(self, letter_id: str) -> Letter:
        """Return one letter.

        Raises:
            NotFound: the letter does not exist.
        """
        return Letter.of(await self._dead.show(letter_id))

    async def redrive(
        self,
        ids: Sequence[str] | None,
        wanted: Mapping[str, str] | None,
        count: int | None,
    ) -> list[LetterOutcome]:
        """Redrive letters by id, or all that a filter matches; see ``chosen``."""
        selection = self._selection
        return await _chosen(ids, wanted, count, selection.redrive_these, selection.redrive)

    async def drop(
        self,
        ids: Sequence[str] | None,
        wanted: Mapping[str, str] | None,
        count: int | None,
    ) -> list[LetterOutcome]:
        """Delete letters by id, or all that a filter matches; see ``chosen``."""
        selection = self._selection
        return await _chosen(ids, wanted, count, selection.drop_these, selection.drop)


async def _chosen(
    ids: Sequence[str] | None,
    wanted: Mapping[str, str] | None,
    count: int | None,
    by_id: _Work,
    by_filter: _Work,
) -> list[LetterOutcome]:
    """Work on letters by id, or on the ``count`` letters of a filter.

    Raises:
        UsageError: not exactly one of ids and filter is given, or a filter comes without a count.
        Conflict: the filter matches another number of letters.
    """
    if (ids is None) == (wanted is None):
        raise UsageError("name either letters or a filter", "set one of `ids` and `filter`")
    if ids is not None:
        return await by_id(list(dict.fromkeys(ids)))
    if count is None:
        raise UsageError(
            "a filter needs `count`, the number of letters that it matches",
            "read it from the list of dead letters",
        )
    return await by_filter(_filter_of(wanted or {}), count=count)


def _filter_of(wanted: Mapping[str, str]) -> LetterFilter:
    unknown = wanted.keys() - set(_FIELDS)
    if unknown:
        raise UsageError(
            f"a filter has no field {min(unknown)[:40]!r}", f"use {', '.join(_FIELDS)}"
        )
    return LetterFilter(**wanted)


def _uri(event: Any) -> str:
    data = event.get("data") if isinstance(event, dict) else None
    uri = data.get("uri") if isinstance(data, dict) else None
    return uri if isinstance(uri, str) else ""
