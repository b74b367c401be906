"""Which changes count: those that are signed as their project asks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import NamedTuple, Protocol

from events.change_log import StreamedChange
from events.signing import Keys
from runtime.errors import SignatureRefused
from store.projects import Projects
from store.standings import Standings, Verdict

__all__ = ["Admission", "Judged", "KeyRing", "Signed"]

FRESH_FOR = timedelta(seconds=2)
"""How long a key that was retired may still count, and an unsigned change after the first key."""

_MOST_PROJECTS = 1_000

ReadKeys = Callable[[str], Awaitable[Keys]]


class Signed(Protocol):
    """The bytes of an event, and the signature that came with them."""

    @property
    def raw(self) -> bytes:
        """The bytes."""

    @property
    def signature(self) -> bytes | None:
        """As it came; None: there is none."""


class _Read(NamedTuple):
    keys: Keys
    at: float


class KeyRing:
    """The keys of projects, read anew every two seconds, and before anything is refused."""

    def __init__(self, read: ReadKeys, fresh_for: timedelta = FRESH_FOR) -> None:
        self._read = read
        self._fresh_for = fresh_for.total_seconds()
        self._known: dict[str, _Read] = {}

    async def refusals(
        self, project: str, events: Sequence[Signed]
    ) -> list[SignatureRefused | None]:
        """Why each of a project's events isn't taken; None: it is.

        Raises:
            Unavailable: the keys can't be read.
        """
        known = self._known.get(project)
        is_fresh = known is not None and monotonic() - known.at < self._fresh_for
        keys = known.keys if known is not None and is_fresh else await self._renew(project)
        found = _refusals(keys, events)
        if is_fresh and any(found):
            found = _refusals(await self._renew(project), events)
        return found

    async def _renew(self, project: str) -> Keys:
        began = monotonic()
        keys = await self._read(project)
        if len(self._known) >= _MOST_PROJECTS:
            self._known.clear()
        self._known[project] = _Read(keys, began)
        return keys


@dataclass(frozen=True, slots=True)
class Judged:
    """Changes of streams by what is known of them, each in their order."""

    admitted: list[StreamedChange] = field(default_factory=list)
    refused: list[StreamedChange] = field(default_factory=list)
    undecided: list[StreamedChange] = field(default_factory=list)


class Admission:
    """Tells readers of the streams what the indexer takes, has taken, or has refused.

    Keys come and go, so that one and the same change may be right today and wrong tomorrow. What
    its signature doesn't prove now is as the ledger has it: taken, refused, or still to be decided.
    """

    def __init__(self, keys: KeyRing, projects: Projects, standings: Standings) -> None:
        self._keys = keys
        self._projects = projects
        self._standings = standings

    async def judge(self, project: str, changes: Sequence[StreamedChange]) -> Judged:
        """Sort changes of one project.

        Raises:
            Unavailable: Postgres can't be read.
        """
        refusals = await self._keys.refusals(project, changes)
        doubtful = [one for one, why in zip(changes, refusals, strict=True) if why is not None]
        verdicts = await self._verdicts(project, doubtful) if doubtful else {}
        judged = Judged()
        for one, why in zip(changes, refusals, strict=True):
            if why is None:
                judged.admitted.append(one)
            else:
                _pile(judged, one, verdicts.get(_own_order(one))).append(one)
        return judged

    async def admitted(self, changes: Sequence[StreamedChange]) -> list[StreamedChange]:
        """Those of any projects that count by now, in their order.

        Raises:
            Unavailable: Postgres can't be read.
        """
        by_project: defaultdict[str, list[StreamedChange]] = defaultdict(list)
        for one in changes:
            by_project[one.project].append(one)
        places: set[tuple[str, int, str]] = set()
        for project, some in by_project.items():
            judged = await self.judge(project, some)
            places |= {_place(one) for one in judged.admitted}
        return [one for one in changes if _place(one) in places]

    async def _verdicts(
        self, project: str, changes: Sequence[StreamedChange]
    ) -> Mapping[tuple[int, int], Verdict]:
        """By the places of the entries themselves: what they claim proves nothing."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return {}
        return await self._standings.verdicts(project_id, {_own_order(one) for one in changes})


def _refusals(keys: Keys, events: Sequence[Signed]) -> list[SignatureRefused | None]:
    return [keys.refusal(one.raw, one.signature) for one in events]


def _pile(judged: Judged, change: StreamedChange, verdict: Verdict | None) -> list[StreamedChange]:
    """A place that is taken speaks for the event that took it: another may have claimed it."""
    if verdict is None:
        return judged.undecided
    is_taken = verdict.takes(change.raw) and change.change.order == _own_order(change)
    return judged.admitted if is_taken else judged.refused


def _own_order(change: StreamedChange) -> tuple[int, int]:
    return change.own.number, change.own.partition


def _place(change: StreamedChange) -> tuple[str, int, str]:
    return change.own.lane.value, change.own.partition, change.own.entry_id
