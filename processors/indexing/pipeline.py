"""Pipeline of changes: check → skip → prepare (resolve, cut) → write → report.

A change is searchable by keyword when the write commits. Vectors that do not exist by then follow,
see ``processors.embedding``.

The documents of a batch are processed together, so that the model and the database get few, large
requests. A document that cannot be processed fails alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

import structlog

from events.names import Lane
from events.positions import LogPosition
from events.streams.changes import LoggedChange
from processors.admission import KeyRing
from processors.embedders.embedder import Urgency
from processors.embedding.keyword_precedence import Precedence
from processors.indexing.documents import EmbeddedDocument, Failure
from processors.indexing.preparation import Preparer
from processors.indexing.realigner import Realigner
from processors.indexing.reports import Change, Reporter, result_of
from processors.limits import Limits
from processors.recipes import RecipeNotices
from runtime.errors import (
    CircuitOpen,
    HeadraceError,
    LimitExceeded,
    OperatorError,
    Poison,
    RateLimited,
)
from runtime.failpoints import failpoint
from store.documents.conflicts import LateChanges
from store.documents.pending import PendingVectors
from store.generations.switch import GenerationMoved
from store.store import Store
from store.types import Applied, DocumentWrite

__all__ = ["Change", "Indexing"]

log = structlog.get_logger(__name__)

GROUP_CHARACTERS = 192 * 1024
"""Approximate text per write transaction; it is limited so that work is acknowledged steadily."""

MOST_MOVES = 3
"""Most generation switches in a row for which a group is prepared again; then it fails."""


_OF_ONE_MODEL = (CircuitOpen, RateLimited, OperatorError)
"""Errors that delay the changes of one project only; other projects of the batch continue."""


class Indexing:
    """The pipeline of changes.

    Each group of changes is prepared for the generation that is live then. If another one is live
    at the time of the write, the group is prepared again, so that no change misses a switch.

    No order is guaranteed between documents, batches or workers. The fence in ``Store.apply`` keeps
    an older change from overwriting a newer one.
    """

    def __init__(
        self,
        store: Store,
        key_ring: KeyRing,
        preparer: Preparer,
        notices: RecipeNotices,
        reporter: Reporter,
        pending: PendingVectors,
        precedence: Precedence,
        realigner: Realigner,
        limits: Limits | None = None,
    ) -> None:
        self._store = store
        self._key_ring = key_ring
        self._preparer = preparer
        self._notices = notices
        self._reporter = reporter
        self._pending = pending
        self._precedence = precedence
        self._realigner = realigner
        self._limits = limits or Limits()

    async def run(self, deliveries: Sequence[Change]) -> None:
        """Index a batch.

        Raises:
            Poison: a change cannot be processed; all others of the batch are done.
            Unavailable: a server or a model is down; unfinished changes stay pending.
        """
        failpoint("indexing.taken")
        bulk = _urgency(deliveries) is Urgency.BULK
        with self._precedence.indexing() if bulk else nullcontext():
            await self._run(deliveries)

    async def _run(self, deliveries: Sequence[Change]) -> None:
        errors: list[HeadraceError] = []
        for group in _groups(deliveries):
            try:
                errors += [failure.error for failure in await self._index(group)]
            except _OF_ONE_MODEL as error:
                errors.append(error)
        if errors:
            raise next((error for error in errors if isinstance(error, Poison)), errors[0])

    async def _index(self, group: Sequence[Change]) -> Sequence[Failure]:
        fresh, refused = await self._sort_out(group)
        for _ in range(MOST_MOVES):
            try:
                return [*refused, *await self._apply(fresh)]
            except GenerationMoved as error:
                log.info("changes.prepared_again", changes=len(fresh), reason=str(error))
        return [*refused, *await self._apply(fresh)]

    async def _sort_out(self, group: Sequence[Change]) -> tuple[list[Change], list[Failure]]:
        """Split a group into changes to apply and changes refused for their signature or size.

        A change that was applied at its own log position was accepted then: its key may have been
        retired since, or a limit lowered.
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
            Failure(_logged(change), why) for change, why in refusals.items() if not change.settled
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

    async def _apply(self, deliveries: Sequence[Change]) -> Sequence[Failure]:
        """Prepare changes of one project for the generation that is live now, and write them."""
        if not deliveries:
            return []
        project = deliveries[0].event.data.project
        generation = await self._store.generation(project)
        self._notices.compare(project, generation)
        changes = [_logged(delivery) for delivery in deliveries]
        prepared = await self._preparer.prepare(changes, generation, _urgency(deliveries))
        failpoint("indexing.prepared")
        applied = await self._write(project, _writes(deliveries, prepared.documents))
        failpoint("indexing.committed")
        by_position = _by_position(deliveries)
        done = list(zip(prepared.documents, applied, strict=True))
        results = [
            result_of(by_position[document.change.log_position], result, document)
            for document, result in done
            if result.conflict is None
        ]
        await self._reporter.finish(results, generation.id)
        refused = [
            Failure(document.change, result.conflict)
            for document, result in done
            if result.conflict
        ]
        return [*prepared.failures, *refused]

    async def _write(self, project: str, writes: Sequence[DocumentWrite]) -> list[Applied]:
        """Write a group. If changes are older than the index, realign their streams first."""
        try:
            return await self._store.apply(writes, may_be_late=False)
        except LateChanges as late:
            await self._realigner.run(project, late.partitions)
        return await self._store.apply(writes)

    async def _skip_handled(
        self, group: Sequence[Change], doubtful: Collection[Change]
    ) -> list[Change]:
        """Leave out changes that a worker had applied but not acknowledged when it crashed.

        It may not have requested their vectors either, so they are requested again.
        """
        keys = {(change.event.data.project, change.log_position): change for change in group}
        proofs = {key: change.sha256 for key, change in keys.items() if change in doubtful}
        handled = await self._store.handled(list(keys), proofs)
        if handled:
            await self._report_handled([keys[key] for key in handled])
        return [delivery for key, delivery in keys.items() if key not in handled]

    async def _report_handled(self, handled: Sequence[Change]) -> None:
        project = handled[0].event.data.project
        generation, waiting = await self._pending.counts_at(
            project, [delivery.log_position for delivery in handled]
        )
        results = [
            result_of(
                delivery,
                Applied(
                    delivery.event.id,
                    "duplicate",
                    chunks_pending=waiting.get(delivery.log_position, 0),
                ),
            )
            for delivery in handled
        ]
        await self._reporter.finish(results, 0 if generation is None else generation.id)


def _by_position(deliveries: Sequence[Change]) -> dict[LogPosition, Change]:
    return {delivery.log_position: delivery for delivery in deliveries}


def _writes(
    deliveries: Sequence[Change], documents: Sequence[EmbeddedDocument]
) -> list[DocumentWrite]:
    """Collect the writes; the ledger must record which changes only assert their position."""
    by_position = _by_position(deliveries)
    writes = [(document.write, by_position[document.change.log_position]) for document in documents]
    return [
        write if change.is_original else replace(write, claimant=change.sha256)
        for write, change in writes
    ]


def _groups(deliveries: Sequence[Change]) -> Iterator[list[Change]]:
    """Split changes into groups of one project each, in the order given."""
    by_project: defaultdict[str, list[Change]] = defaultdict(list)
    for delivery in deliveries:
        by_project[delivery.event.data.project].append(delivery)
    for changes in by_project.values():
        yield from _sized(changes)


def _sized(changes: Sequence[Change]) -> Iterator[list[Change]]:
    group: list[Change] = []
    size = 0
    for delivery in changes:
        length = _size(delivery)
        if group and size + length > GROUP_CHARACTERS:
            yield group
            group, size = [], 0
        group.append(delivery)
        size += length
    if group:
        yield group


def _size(delivery: Change) -> int:
    """Size of an event, including content that it references."""
    reference = delivery.event.data.content_ref
    return len(delivery.raw) + (0 if reference is None else reference.size_bytes)


def _logged(delivery: Change) -> LoggedChange:
    return LoggedChange(delivery.log_position, delivery.event)


def _urgency(group: Sequence[Change]) -> Urgency:
    live = any(change.own is not None and change.own.lane is Lane.LIVE for change in group)
    return Urgency.LIVE if live else Urgency.BULK
