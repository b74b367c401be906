"""Intake of changes: groups them, and leaves out those that are refused or already applied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from events.streams.changes import LoggedChange
from processors.admission import KeyRing, Limits
from processors.indexing.preparation import Failure
from processors.indexing.reports import Change, Reporter, result_of
from runtime.errors import LimitExceeded, Poison
from runtime.traces import staged
from store.documents.pending import PendingVectors
from store.store import Store
from store.types import Applied

__all__ = ["GROUP_CHARACTERS", "ChangeIntake", "groups_of", "logged"]

GROUP_CHARACTERS = 192 * 1024
"""Approximate text per write transaction; it is limited so that work is acknowledged steadily."""


class ChangeIntake:
    """Checks of a group of changes before the work: signatures, duplicates, operator's limits."""

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
    async def admit(self, group: Sequence[Change]) -> tuple[list[Change], list[Failure]]:
        """Split a group of one project into changes to apply and changes refused.

        A change that was applied at its own log position was accepted then: its key may have been
        retired since, or a limit lowered. It is acknowledged here.

        Raises:
            Unavailable: a server cannot be reached; unfinished changes stay pending.
        """
        reasons = await self._key_ring.refusals(group[0].event.data.project, group)
        refusals: dict[Change, Poison] = {
            change: why for change, why in zip(group, reasons, strict=True) if why is not None
        }
        fresh = await self._skip_handled(
            [change for change in group if change not in refusals or change.is_original],
            refusals,
        )
        refusals = self._over_limits(fresh) | refusals
        failures = [
            Failure(logged(change), why) for change, why in refusals.items() if not change.settled
        ]
        return [change for change in fresh if change not in refusals], failures

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
        project = handled[0].event.data.project
        generation, waiting = await self._pending.counts_at(
            project, [change.log_position for change in handled]
        )
        results = []
        for change in handled:
            chunks_pending = waiting.get(change.log_position, 0)
            applied = Applied(change.event.id, "duplicate", chunks_pending=chunks_pending)
            results.append(result_of(change, applied))
        await self._reporter.finish(results, 0 if generation is None else generation.id)


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
