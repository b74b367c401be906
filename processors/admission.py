"""Admission of events: signatures as the project requires them, and the operator's limits."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Protocol, Self, TypeVar

from events.models import DocumentChange, Event, QueryRequested
from events.names import LogPosition
from events.signatures import Keys
from events.streams.changes import StreamedChange
from runtime import protocol_limits
from runtime.errors import LimitExceeded, SignatureRefused
from runtime.intervals import TTLCache
from runtime.settings import EventLimits, Settings
from store.documents.ledger import Verdict
from store.generations.catalog import Projects
from store.generations.document_positions import DocumentPositions

__all__ = ["Admission", "Decision", "KeyRing", "Limits", "Signed"]

FRESH_FOR = timedelta(seconds=2)
"""Age of cached keys: for this long a retired key, or an unsigned change, may still be accepted."""

_MOST_PROJECTS = 1_000

ReadKeys = Callable[[Collection[str]], Awaitable[Mapping[str, Keys]]]
"""Read the keys of projects, by name."""


class Signed(Protocol):
    """The bytes of an event, and the signature that came with them."""

    @property
    def raw(self) -> bytes:
        """Bytes of the event."""

    @property
    def signature(self) -> bytes | None:
        """Signature as received. It is None if the event has none."""


class KeyRing:
    """Cache of the projects' keys, read again every two seconds and before an event is refused."""

    def __init__(self, read: ReadKeys, fresh_for: timedelta = FRESH_FOR) -> None:
        self._read = read
        self._keys: TTLCache[str, Keys] = TTLCache(fresh_for.total_seconds(), _MOST_PROJECTS)

    async def load(self, projects: Collection[str]) -> None:
        """Read the keys of projects that are not cached, in one statement for all of them.

        Raises:
            Unavailable: the keys cannot be read.
        """
        missing = [project for project in projects if self._keys.get(project) is None]
        if missing:
            await self._renew(missing)

    async def refusals(
        self, project: str, events: Sequence[Signed]
    ) -> list[SignatureRefused | None]:
        """Return for each of a project's events the reason to refuse it, or None to accept it.

        Raises:
            Unavailable: the keys cannot be read.
        """
        cached = self._keys.get(project)
        keys = (await self._renew([project]))[project] if cached is None else cached
        refusals = _refusals(keys, events)
        if cached is not None and any(refusals):
            refusals = _refusals((await self._renew([project]))[project], events)
        return refusals

    async def _renew(self, projects: Collection[str]) -> Mapping[str, Keys]:
        began = monotonic()
        read = await self._read(projects)
        for project, keys in read.items():
            self._keys.put(project, keys, at=began)
        return read


@dataclass(frozen=True, slots=True)
class Decision:
    """Changes of streams, sorted by verdict; each list keeps their order."""

    admitted: list[StreamedChange] = field(default_factory=list)
    refused: list[StreamedChange] = field(default_factory=list)
    undecided: list[StreamedChange] = field(default_factory=list)


class Admission:
    """Sorts changes of the streams into those that the indexer accepts, refused, or must decide.

    Keys are added and retired, so a change that verifies today may not verify tomorrow. If a
    signature does not verify now, the ledger decides: accepted, refused, or undecided.
    """

    def __init__(
        self, keys: KeyRing, projects: Projects, document_positions: DocumentPositions
    ) -> None:
        self._keys = keys
        self._projects = projects
        self._document_positions = document_positions

    async def load(self, projects: Collection[str]) -> None:
        """Read the keys of projects together, before each of them is decided.

        Raises:
            Unavailable: Postgres cannot be read.
        """
        await self._keys.load(projects)

    async def decide(self, project: str, changes: Sequence[StreamedChange]) -> Decision:
        """Sort changes of one project by verdict.

        Raises:
            Unavailable: Postgres cannot be read.
        """
        refusals = await self._keys.refusals(project, changes)
        doubtful = [
            change for change, why in zip(changes, refusals, strict=True) if why is not None
        ]
        verdicts = await self._verdicts(project, doubtful) if doubtful else {}
        decision = Decision()
        for change, why in zip(changes, refusals, strict=True):
            if why is None:
                decision.admitted.append(change)
            else:
                _pile(decision, change, verdicts.get(change.own)).append(change)
        return decision

    async def admitted(self, changes: Sequence[StreamedChange]) -> list[StreamedChange]:
        """Return the admitted changes, in their order. The changes may be of several projects.

        Raises:
            Unavailable: Postgres cannot be read.
        """
        by_project: defaultdict[str, list[StreamedChange]] = defaultdict(list)
        for change in changes:
            by_project[change.project].append(change)
        await self.load(by_project)
        admitted: set[tuple[str, int, str]] = set()
        for project, changes_of_project in by_project.items():
            decision = await self.decide(project, changes_of_project)
            admitted |= {_identity(change) for change in decision.admitted}
        return [change for change in changes if _identity(change) in admitted]

    async def _verdicts(
        self, project: str, changes: Sequence[StreamedChange]
    ) -> Mapping[LogPosition, Verdict]:
        """Look up verdicts by the entries' own positions: an asserted position proves nothing."""
        project_id = await self._projects.find(project)
        if project_id is None:
            return {}
        own_positions = {change.own for change in changes}
        return await self._document_positions.verdicts(project_id, own_positions)


def _refusals(keys: Keys, events: Sequence[Signed]) -> list[SignatureRefused | None]:
    if not keys.active:  # a project without active keys accepts every event
        return [None] * len(events)
    return [keys.refusal(event.raw, event.signature) for event in events]


def _pile(
    decision: Decision, change: StreamedChange, verdict: Verdict | None
) -> list[StreamedChange]:
    """Return the list of ``decision`` that a change belongs to.

    A verdict applies only to the event recorded at that position; another may have asserted it.
    """
    if verdict is None:
        return decision.undecided
    is_taken = verdict.takes(change.raw) and change.change.log_position == change.own
    return decision.admitted if is_taken else decision.refused


def _identity(change: StreamedChange) -> tuple[str, int, str]:
    return change.own.lane.value, change.own.partition, change.own.entry_id


E = TypeVar("E", bound=Event)


class Limits(EventLimits):
    """Checks of events against the limits of the setting ``HEADRACE_LIMITS``."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Read the limits from the settings."""
        return cls.model_validate(dict(settings.limits))

    def decoder(self, event: type[E]) -> Callable[[bytes], E]:
        """Return a function that parses events and refuses those that are too large.

        The function raises LimitExceeded, and MalformedEvent as ``Event.from_bytes`` does.
        """

        def decode(raw: bytes) -> E:
            if len(raw) <= protocol_limits.EVENT_BYTES:  # from_bytes refuses what is larger
                self._check("event_bytes", "the event", len(raw))
            return event.from_bytes(raw)

        return decode

    def check_change(self, change: DocumentChange) -> None:
        """Raise LimitExceeded if a field is over its limit."""
        self._check("uri_bytes", "uri", len(change.uri.encode()))
        self._check("uri_bytes", "old_uri", len((change.old_uri or "").encode()))
        self._check("title_characters", "title", len(change.title or ""))
        self._check("collections", "collections", len(change.collections))
        self._check("metadata_entries", "metadata", len(change.metadata))
        metadata = json.dumps(change.metadata, ensure_ascii=False)
        self._check("metadata_bytes", "metadata", len(metadata.encode()))

    def check_question(self, event: QueryRequested) -> None:
        """Raise LimitExceeded if a field is over its limit."""
        query = event.data
        self._check("query_characters", "text", len(query.text))
        self._check("results", "limit", query.limit)
        self._check("context_tokens", "context_tokens", query.context_tokens or 0)
        if query.deadline is not None:
            self._check("query_deadline", "deadline", query.deadline - event.time)

    def _check(self, name: str, field: str, size: int | timedelta) -> None:
        most = getattr(self, name)
        if size > most:
            raise LimitExceeded(
                f"{field}: {_shown(size, name)}, over the limit of {_shown(most, name)}",
                f"reduce it, or raise {name} in HEADRACE_LIMITS",
            )


def _shown(size: int | timedelta, name: str) -> str:
    if isinstance(size, timedelta):
        return f"{size.total_seconds():,.0f} s"
    return f"{size:,} {name.rpartition('_')[2]}"
