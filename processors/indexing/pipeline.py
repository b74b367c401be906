"""Pipeline of changes: admit → prepare (resolve, cut) → write → report.

A change is searchable by keyword when the write commits. Vectors that do not exist by then follow,
see ``processors.embedding``.

The documents of a batch are processed together, so that the model and the database get few, large
requests. A document that cannot be processed fails alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain, islice

import structlog

from events.names import Lane
from processors.embedders.embedder import Urgency
from processors.embedding.keyword_precedence import Precedence
from processors.indexing.intake import ChangeIntake, logged, parts_of
from processors.indexing.preparation import Prepared, Preparer
from processors.indexing.realigner import Realigner
from processors.indexing.reports import Change, Reporter, Written
from processors.recipes import RecipeNotices
from runtime import metrics
from runtime.errors import CircuitOpen, HeadraceError, OperatorError, Poison, RateLimited
from runtime.failpoints import failpoint
from runtime.traces import staged
from store.documents.fence import LateChanges
from store.generations.catalog import Generation
from store.generations.switch import GenerationMoved
from store.store import Store
from store.types import Applied, DocumentWrite

__all__ = ["Indexing"]

log = structlog.get_logger(__name__)

MOST_MOVES = 3
"""Most generation switches in a row for which a group is prepared again; then it fails."""

_OF_ONE_PROJECT = (CircuitOpen, RateLimited, OperatorError)
"""Errors that delay the changes of one project only; other projects of the batch continue."""

WRITES_AT_ONCE = 3
"""Concurrent transactions of a batch, so that one works while others wait for Postgres. They must
leave connections to questions."""

PROJECTS_TOGETHER = 8
"""Projects of a transaction. A switch of one of them waits for all."""


@dataclass(frozen=True, slots=True)
class _PreparedGroup:
    """Changes of one project that were prepared for a generation."""

    changes: Sequence[Change]
    generation: Generation
    prepared: Prepared

    @property
    def project(self) -> str:
        """Name of the project."""
        return self.changes[0].event.data.project

    @property
    def is_of_one_agent(self) -> bool:
        """Return whether all changes are of one agent, or all are shared."""
        return len({change.event.data.agent for change in self.changes}) == 1

    def writes(self) -> list[DocumentWrite]:
        """Collect the writes; the ledger must record which changes only assert their position."""
        claimants = {
            change.log_position: change.sha256 for change in self.changes if not change.is_original
        }
        return [
            replace(
                document.write,
                claimant=claimants.get(document.change.log_position),
                tokens_embedded=document.tokens_embedded,
                cost_usd=document.cost_usd,
            )
            for document in self.prepared.documents
        ]

    def written(self, applied: Sequence[Applied]) -> Written:
        """Return what was written, from the results of the writes."""
        return Written(self.changes, self.prepared.documents, applied, self.generation)


class Indexing:
    """The pipeline of changes.

    Each group of changes, which are of one project, is prepared for the generation that is live
    then. If another one is live at the time of the write, the group is prepared again, so that no
    change misses a switch. Groups of different projects share reads, transactions and reports.

    No order is guaranteed between documents, batches or workers. The fence in ``Store.apply`` keeps
    an older change from overwriting a newer one.
    """

    def __init__(
        self,
        store: Store,
        intake: ChangeIntake,
        preparer: Preparer,
        notices: RecipeNotices,
        reporter: Reporter,
        precedence: Precedence,
        realigner: Realigner,
    ) -> None:
        self._store = store
        self._intake = intake
        self._preparer = preparer
        self._notices = notices
        self._reporter = reporter
        self._precedence = precedence
        self._realigner = realigner

    async def run(self, deliveries: Sequence[Change]) -> None:
        """Index a batch.

        Raises:
            Poison: a change cannot be processed; all others of the batch are done.
            Unavailable: a server or a model is down; unfinished changes stay pending.
        """
        failpoint("indexing.taken")
        errors: list[HeadraceError] = []
        bulk = _urgency(deliveries) is Urgency.BULK
        with self._precedence.indexing() if bulk else nullcontext():
            for part in parts_of(deliveries):
                errors += await self._index(part)
        if errors:
            raise next((error for error in errors if isinstance(error, Poison)), errors[0])

    async def _index(self, part: Sequence[Sequence[Change]]) -> list[HeadraceError]:
        """Index groups of different projects; return the errors that concern single changes."""
        with metrics.INDEXING_STAGE_SECONDS.time(stage="skip"):
            admitted = await self._intake.admit(part)
        errors: list[HeadraceError] = [
            failure.error for group in admitted for failure in group.failures
        ]
        left: list[Sequence[Change]] = [group.changes for group in admitted if group.changes]
        for number in range(MOST_MOVES + 1):
            left = await self._apply(left, errors, is_last=number == MOST_MOVES)
        return errors

    async def _apply(
        self, groups: Sequence[Sequence[Change]], errors: list[HeadraceError], *, is_last: bool
    ) -> list[Sequence[Change]]:
        """Prepare changes for the generations that are live now, and write them.

        Adds to ``errors``. Returns the groups that must be prepared again because their project
        was switched in between, unless this attempt is the last one.
        """
        if not groups:
            return []
        prepared = await self._prepare(groups, errors)
        failpoint("indexing.prepared")
        with metrics.INDEXING_STAGE_SECONDS.time(stage="write"):
            attempts = await self._write_all(prepared)
        failpoint("indexing.committed")
        with metrics.INDEXING_STAGE_SECONDS.time(stage="report"):
            written = [attempt for _, attempt in attempts if isinstance(attempt, Written)]
            errors += [failure.error for failure in await self._reporter.report(written)]
        moved: list[Sequence[Change]] = []
        for group, attempt in attempts:
            if isinstance(attempt, GenerationMoved) and not is_last:
                log.info("changes.prepared_again", changes=len(group.changes), reason=str(attempt))
                moved.append(group.changes)
                continue
            errors += [failure.error for failure in group.prepared.failures]
            if isinstance(attempt, _OF_ONE_PROJECT):
                errors.append(attempt)
            elif isinstance(attempt, BaseException):
                raise attempt
        return moved

    async def _prepare(
        self, groups: Sequence[Sequence[Change]], errors: list[HeadraceError]
    ) -> list[_PreparedGroup]:
        """Prepare groups together, or one by one if that fails because of a model.

        Adds to ``errors``, and leaves out the groups whose model fails.
        """
        projects = [group[0].event.data.project for group in groups]
        live = await self._store.live_generations(projects)
        for project, generation in live.items():
            if generation.id not in self._notices.compared:
                self._notices.compare(project, generation)
        generations = [live[project] for project in projects]
        changes = [[logged(delivery) for delivery in group] for group in groups]
        urgency = _urgency([delivery for group in groups for delivery in group])
        try:
            prepared = await self._preparer.prepare_groups(
                list(zip(changes, generations, strict=True)), urgency
            )
        except _OF_ONE_PROJECT as error:
            if len(groups) > 1:
                return [alone for group in groups for alone in await self._prepare([group], errors)]
            errors.append(error)
            return []
        return [_PreparedGroup(*parts) for parts in zip(groups, generations, prepared, strict=True)]

    async def _write_all(
        self, groups: Sequence[_PreparedGroup]
    ) -> list[tuple[_PreparedGroup, Written | BaseException]]:
        """Write groups, some at once; return each with what was written of it, or why it failed.

        Groups that share a transaction are written alone if it fails.
        """
        limit = asyncio.Semaphore(WRITES_AT_ONCE)

        async def write(part: Sequence[_PreparedGroup]) -> list[Written | BaseException]:
            if len(part) > 1:
                async with limit:
                    together = await self._write_together(part)
                if together is not None:
                    return together
            return await asyncio.gather(*map(write_alone, part), return_exceptions=True)

        async def write_alone(group: _PreparedGroup) -> Written:
            async with limit:
                applied = await self._write(group.project, group.writes())
            return group.written(applied)

        parts = _parts(groups)
        written = await asyncio.gather(*map(write, parts))
        return list(zip(chain(*parts), chain(*written), strict=True))

    @staged("write")
    async def _write_together(
        self, groups: Sequence[_PreparedGroup]
    ) -> list[Written | BaseException] | None:
        """Write groups in one transaction; return None if it failed before its end."""
        try:
            applied = await self._store.apply_together(
                [write for group in groups for write in group.writes()]
            )
        except Exception as error:  # noqa: BLE001 - the caller raises it
            return [error for _ in groups]
        if applied is None:
            return None
        results = iter(applied)
        return [
            group.written(list(islice(results, len(group.prepared.documents)))) for group in groups
        ]

    @staged("write")
    async def _write(self, project: str, writes: Sequence[DocumentWrite]) -> list[Applied]:
        """Write a group. If changes are older than the index, realign their streams first."""
        try:
            return await self._store.apply(writes, may_be_late=False)
        except LateChanges as late:
            await self._realigner.run(project, late.partitions)
        return await self._store.apply(writes)


def _parts(groups: Sequence[_PreparedGroup]) -> list[Sequence[_PreparedGroup]]:
    """Divide groups into those that share a transaction.

    A group of several agents has transactions of its own: the records of its documents would not be
    locked in the order in which others lock them.
    """
    shared = [group for group in groups if group.is_of_one_agent]
    return [
        *(
            shared[start : start + PROJECTS_TOGETHER]
            for start in range(0, len(shared), PROJECTS_TOGETHER)
        ),
        *([group] for group in groups if not group.is_of_one_agent),
    ]


def _urgency(group: Sequence[Change]) -> Urgency:
    live = any(change.own is not None and change.own.lane is Lane.LIVE for change in group)
    return Urgency.LIVE if live else Urgency.BULK
