"""Dead letters by topic, project and error: pages, counts, and what is done with all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from redis.asyncio import Redis

from events.names import Names
from events.streams.dead_letters import DeadLetter, DeadLetters
from runtime.errors import Conflict, NotFound

__all__ = ["LetterCount", "LetterFilter", "LetterOutcome", "LetterSelection"]


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Choice of dead letters. A field that is None allows every value.

    ``project`` is '' for events whose project can't be read.
    """

    topic: str | None = None
    project: str | None = None
    error: str | None = None

    def matches(self, letter: DeadLetter) -> bool:
        """Return whether error and project are those of a letter; its topic is read by stream."""
        return self.error in (None, letter.error) and self.project in (None, letter.project)


@dataclass(frozen=True, slots=True)
class LetterCount:
    """Number of letters with the same topic, error and project; first and last time of them."""

    topic: str
    error: str
    project: str
    count: int
    oldest_at: datetime
    newest_at: datetime


@dataclass(frozen=True, slots=True)
class LetterOutcome:
    """Result of an operation on one letter.

    It is ``gone`` if another operation redrove or dropped it first. ``token`` and ``project`` are
    those of a redriven change, with '' for a project that can't be read; ``entry_id`` is its new
    entry.
    """

    id: str
    outcome: Literal["redriven", "dropped", "gone"]
    token: str | None = None
    entry_id: str = ""
    project: str = ""


@dataclass(frozen=True, slots=True)
class _Change:
    """Change of a letter, which is not kept whole: a filter may match many."""

    token: str | None = None
    project: str = ""


@dataclass
class _Group:
    count: int = 0
    times: list[datetime] = field(default_factory=list)

    def add(self, at: datetime) -> None:
        """Count a letter, and keep the first and the last time."""
        self.count += 1
        self.times = [min([*self.times, at]), max([*self.times, at])]


class LetterSelection:
    """Operations on all dead letters that a filter matches.

    Each method reads the letters of the filter's topic, in pages. It raises Unavailable if Redis
    can't be reached, and UsageError if the topic does not exist.
    """

    def __init__(self, redis: Redis, names: Names) -> None:
        self._dead = DeadLetters(redis, names)

    async def page(
        self, wanted: LetterFilter, *, before: str | None = None, limit: int = 50
    ) -> list[DeadLetter]:
        """Return at most ``limit`` letters, newest first.

        ``before``: id of the last letter of the page before, which may be gone.
        """
        letters: list[DeadLetter] = []
        async for letter in self._dead.newest(wanted.topic, before):
            if wanted.matches(letter):
                letters.append(letter)
            if len(letters) >= limit:
                break
        return letters

    async def counts(self, wanted: LetterFilter = LetterFilter()) -> list[LetterCount]:
        """Count the letters by topic, error and project; the largest count comes first."""
        groups: defaultdict[tuple[str, str, str], _Group] = defaultdict(_Group)
        async for letter in self._dead.newest(wanted.topic):
            if wanted.matches(letter):
                groups[letter.topic, letter.error, letter.project].add(letter.last_at)
        counts = [
            LetterCount(*key, group.count, group.times[0], group.times[-1])
            for key, group in groups.items()
        ]
        return sorted(counts, key=lambda row: (-row.count, row.topic, row.error, row.project))

    async def redrive(
        self, wanted: LetterFilter = LetterFilter(), *, count: int | None = None
    ) -> list[LetterOutcome]:
        """Redrive every current letter of the filter, oldest first.

        Letters that arrive later wait, or a poison event would be redriven for ever.

        Raises:
            Conflict: the filter matches another number of letters than ``count``; none is redriven.
        """
        return await self._each(wanted, count, self._redrive_one)

    async def drop(
        self, wanted: LetterFilter = LetterFilter(), *, count: int | None = None
    ) -> list[LetterOutcome]:
        """Delete every current letter of the filter permanently.

        Raises:
            Conflict: the filter matches another number of letters than ``count``; none is deleted.
        """
        return await self._each(wanted, count, self._drop_one)

    async def redrive_these(self, letter_ids: Sequence[str]) -> list[LetterOutcome]:
        """Redrive letters by id, in the given order."""
        return [await self._redrive_one(name, await self._found(name)) for name in letter_ids]

    async def drop_these(self, letter_ids: Sequence[str]) -> list[LetterOutcome]:
        """Delete letters by id permanently."""
        return [await self._drop_one(name, _Change()) for name in letter_ids]

    async def _each(
        self,
        wanted: LetterFilter,
        count: int | None,
        work: Callable[[str, _Change], Awaitable[LetterOutcome]],
    ) -> list[LetterOutcome]:
        chosen = [
            (letter.id, _Change(letter.token, letter.project))
            async for letter in self._dead.newest(wanted.topic)
            if wanted.matches(letter)
        ]
        if count is not None and len(chosen) != count:
            raise Conflict(
                f"the filter matches {len(chosen):,} dead letters, not {count:,}",
                "look at them again, and repeat with the current count",
            )
        return [await work(letter_id, change) for letter_id, change in reversed(chosen)]

    async def _found(self, letter_id: str) -> _Change:
        try:
            letter = await self._dead.show(letter_id)
        except NotFound:
            return _Change()
        return _Change(letter.token, letter.project)

    async def _redrive_one(self, letter_id: str, change: _Change) -> LetterOutcome:
        try:
            entry_id = await self._dead.redrive(letter_id)
        except NotFound:
            return LetterOutcome(letter_id, "gone")
        return LetterOutcome(letter_id, "redriven", change.token, entry_id, change.project)

    async def _drop_one(self, letter_id: str, _change: _Change) -> LetterOutcome:
        try:
            await self._dead.drop(letter_id)
        except NotFound:
            return LetterOutcome(letter_id, "gone")
        return LetterOutcome(letter_id, "dropped")
