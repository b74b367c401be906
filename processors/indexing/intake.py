"""Intake of changes: groups them, and leaves out those that are refused or already applied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from events.streams.changes import LoggedChange
from processors.admission import KeyRing, Limits
from processors.indexing.preparation import Failure
from processors.indexing.reports import Change, Reporter, result_of
from runtime.errors import LimitExceeded, Poison
from runtime.traces import staged
from store.documents.pending import PendingVectors
from store.store import Store
from store.types import Applied

__all__ = ["GROUP_CHARACTERS", "Admitted", "ChangeIntake", "groups_of", "logged", "parts_of"]

GROUP_CHARACTERS = 192 * 1024
"""Approximate text per write transaction; it is limited so that work is acknowledged steadily."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Changes of one project that are to be applied, and changes that were refused."""

    changes: list[Change]
    failures: list[Failure]


class ChangeIntake:
    """Checks of changes before the work: signatures, duplicates, operator's limits."""

    def __init__(
        self,
        store: Store,
        key_ring: KeyRing,
        pending: PendingVectors,
        reporter: Reporter,
        limits: Limits,
    ) -> None:
        self._store = store
        self._key_ring = key_ring
        self._pending = pending
        self._reporter = reporter
        self._limits = limits

    @staged("admit")
    async def admit(self, groups: Sequence[Sequence[Change]]) -> list[Admitted]:
        """Split groups, each of one project, into changes to apply and changes refused.

        A change that was applied at its own log position was accepted then: its key may have been
        retired since, or a limit lowered. It is acknowledged here. The keys and the ledger of all
        projects are read in one statement each.

        Raises:
            Unavailable: a server cannot be reached; unfinished changes stay pending.
        """
        await self._key_ring.load({group[0].event.data.project for group in groups})
        refusals: dict[Change, Poison] = {}
        for group in groups:
            reasons = await self._key_ring.refusals(group[0].event.data.project, group)
            refusals |= {
                change: why for change, why in zip(group, reasons, strict=True) if why is not None
            }
        changes = [change for group in groups for change in group]
        fresh = await self._skip_handled(
            [change for change in changes if change not in refusals or change.is_original],
            refusals,
        )
        refusals = self._over_limits(fresh) | refusals
        admitted = set(fresh) - refusals.keys()
        return [
            Admitted(
                [change for change in group if change in admitted],
                [
                    Failure(logged(change), refusals[change])
                    for change in group
                    if change in refusals and not change.settled
                ],
            )
            for group in groups
        ]

    def _over_limits(self, changes: Sequence[Change]) -> dict[Change, Poison]:
        refusals: dict[Change, Poison] = {}
        for change in changes:
            try:
                self._limits.check_change(change.event.data)
            except LimitExceeded as error:
                refusals[change] = error
        return refusals

    async def _skip_handled(
        self, group: Sequence[Change], doubtful: Collection[Change]
    ) -> list[Change]:
        """Leave out changes that a worker had applied but not acknowledged when it crashed.

        It may not have requested their vectors either, so they are requested again.
        """
        # Of two deliveries of one position, the last is handled. The other is acknowledged with the
        # batch, which fails if the last does; then each of them is handled alone.
        keys = {(change.event.data.project, change.log_position): change for change in group}
        proofs = {key: change.sha256 for key, change in keys.items() if change in doubtful}
        handled = await self._store.handled(list(keys), proofs)
        if handled:
            await self._report_handled([keys[key] for key in handled])
        return [change for key, change in keys.items() if key not in handled]

    async def _report_handled(self, handled: Sequence[Change]) -> None:
        by_project: defaultdict[str, list[Change]] = defaultdict(list)
        for change in handled:
            by_project[change.event.data.project].append(change)
        results = []
        for project, changes in by_project.items():
            generation, waiting = await self._pending.counts_at(
                project, [change.log_position for change in changes]
            )
            for change in changes:
                chunks_pending = waiting.get(change.log_position, 0)
                applied = Applied(change.event.id, "duplicate", chunks_pending=chunks_pending)
                generation_id = 0 if generation is None else generation.id
                results.append(result_of(change, applied, generation_id))
        await self._reporter.finish(results)


def parts_of(changes: Sequence[Change]) -> Iterator[list[list[Change]]]:
    """Split changes into parts that are indexed one after the other.

    A part has groups of different projects, and about as much text as a group may have.
    """
    part: list[list[Change]] = []
    size = 0
    for group in groups_of(changes):
        length = sum(map(_size, group))
        if part and size + length > GROUP_CHARACTERS:
            yield part
            part, size = [], 0
        part.append(group)
        size += length
    if part:
        yield part


def groups_of(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Split changes into groups of one project each, in the order given."""
    by_project: defaultdict[str, list[Change]] = defaultdict(list)
    for change in changes:
        by_project[change.event.data.project].append(change)
    for changes_of_project in by_project.values():
        yield from _sized(changes_of_project)


def _sized(changes: Sequence[Change]) -> Iterator[list[Change]]:
    group: list[Change] = []
    size = 0
    for change in changes:
        length = _size(change)
        if group and size + length > GROUP_CHARACTERS:
            yield group
            group, size = [], 0
        group.append(change)
        size += length
    if group:
        yield group


def _size(change: Change) -> int:
    """Size of an event, including content that it references."""
    reference = change.event.data.content_ref
    return len(change.raw) + (0 if reference is None else reference.size_bytes)


def logged(change: Change) -> LoggedChange:
    """Return a change as the log has it, at the position that counts."""
    return LoggedChange(change.log_position, change.event)
