"""Catch-up of a generation with the live one, and the switch that makes it live."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from processors.replay.builder import Builder, Progress
from processors.replay.fold import Fold
from processors.replay.project_log import ProjectLog
from processors.replay.verification import Difference, NotSwitched
from runtime.errors import Unavailable
from runtime.failpoints import failpoint
from store.generations import catalog
from store.generations.catalog import Generation
from store.generations.document_positions import DocumentPosition, DocumentPositions
from store.generations.switch import exclusive, switch
from store.postgres.connection import WriteConflict
from store.postgres.locks import HeldLock
from store.postgres.pool import Database

__all__ = ["CatchUp", "make_live"]

FEW_DOCUMENTS = 64
"""Number of documents that can be brought up to date while writers wait."""

MOST_ROUNDS = 50

log = structlog.get_logger(__name__)
MOST_TRIES = 120
PAUSE_SECONDS = 0.25
LIMIT_SECONDS = 10.0
"""Longest time that writers wait; the database ends an idle transaction after as long, too."""


@dataclass
class CatchUp:
    """Comparison of a generation with the live one, and build of what it lacks from the log.

    ``compared_at``: the moment of the last comparison of all documents; what it found is built.
    """

    live: Generation
    log: ProjectLog
    fold: Fold
    document_positions: DocumentPositions
    builder: Builder
    compared_at: int | None = None

    async def approach(self, progress: Progress) -> None:
        """Catch up until little is missing, while workers continue to write changes.

        Raises:
            NotSwitched: the log lacks a change, or one can't be processed with this recipe.
            Unavailable: a server or a model is down; what was written stays.
        """
        for _ in range(MOST_ROUNDS):
            failpoint("replay.catching_up")
            moment = await self.document_positions.moment(self.live.project_id)
            behind = await self.document_positions.newer(self.live, self.builder.generation)
            if behind:
                await self._build(behind, progress)
            await self.builder.embed(progress)
            self.compared_at = moment
            if len(behind) <= FEW_DOCUMENTS:
                return

    async def finish(self) -> bool:
        """Catch up completely, while no change can be written.

        Returns False if too much is missing for that. Compares only what was written since
        ``approach`` compared everything: the wait of writers does not grow with the index.

        Raises:
            NotSwitched, Unavailable: see ``approach``.
        """
        behind = await self._behind()
        if len(behind) > FEW_DOCUMENTS:
            return False
        if behind:
            await self._build(behind, lambda _done, _total: None)
            if await self._behind():
                name = f"generation {self.builder.generation.id}"
                raise NotSwitched(f"{name} could not be caught up", "try again")
        return True

    async def _behind(self) -> list[DocumentPosition]:
        return await self.document_positions.newer(
            self.live, self.builder.generation, self.compared_at
        )

    async def _build(self, behind: Sequence[DocumentPosition], progress: Progress) -> None:
        fold = await self._find(behind)
        missing = [position for position in behind if position.key not in fold]
        if missing:
            raise self._missing_error("the log lacks the last change", missing)
        needed = fold.rows_of(stored_position.key for stored_position in behind)
        await self.builder.build(fold, needed, progress)
        refused = [
            document
            for document in map(fold.__getitem__, needed.tolist())
            if document.log_position in self.builder.refused
        ]
        if refused:
            raise NotSwitched(
                self._message("can't be processed with its recipe"),
                differences=[
                    Difference.of(document.key, self.builder.refused[document.log_position].message)
                    for document in refused
                ],
                generation=self.builder.generation.id,
            )

    async def _find(self, behind: Sequence[DocumentPosition]) -> Fold:
        """Find the changes that produced live versions: in the fold, the streams, the archive.

        Exactly these changes are used, even if the ledger rejected one before it was redriven. A
        later change that no worker has applied yet may still be rejected: it is used only if the
        log lacks the exact one.
        """
        exact = Fold(only={stored_position.log_position for stored_position in behind})
        for stored_position in behind:
            document = self.fold.find(stored_position.key)
            if document is not None and document.log_position == stored_position.log_position:
                exact.put(document)
        first = min(stored_position.position for stored_position in behind)
        if not all(stored_position.key in exact for stored_position in behind):
            await self.log.read_new(exact, first)
        if not all(stored_position.key in exact for stored_position in behind):
            await self.log.read_archive(exact, first - 1)
        for stored_position in behind:
            later = self.fold.find(stored_position.key)
            if later is None or stored_position.key in exact:
                continue
            if later.rank > stored_position.rank:
                exact.put(later)
        return exact

    def _missing_error(self, reason: str, missing: Sequence[DocumentPosition]) -> NotSwitched:
        damage = "; ".join(f"{segment.path} is damaged" for segment in self.log.damaged.values())
        return NotSwitched(
            self._message("are newer in the live generation than in the log")
            + (f" ({damage})" if damage else ""),
            differences=[
                Difference.of(
                    stored_position.key,
                    str(self.builder.refused.get(stored_position.log_position, reason)),
                )
                for stored_position in missing
            ],
            generation=self.builder.generation.id,
        )

    def _message(self, reason: str) -> str:
        return (
            f"generation {self.builder.generation.id} of {self.log.project} was not made live: "
            f"documents {reason}: {{documents}}"
        )


async def make_live(
    database: Database, catch_up: CatchUp, lock: HeldLock, progress: Progress
) -> None:
    """Catch a generation up and make it live. Queries are not blocked; writers wait at the end.

    Raises:
        NotSwitched: it can't be caught up.
        Unavailable: a server failed, or the write load is too high. The live generation is
            unchanged, unless the connection broke during the commit and could not be restored.
    """
    generation, project = catch_up.builder.generation, catch_up.log.project
    for attempt in range(MOST_TRIES):
        await catch_up.approach(progress)
        await lock.prove()
        try:
            done = await _try_switch(database, catch_up)
        except (Unavailable, TimeoutError) as error:
            done = await _is_live(database, generation)
            if not done and not isinstance(error, WriteConflict | TimeoutError):
                raise
            log.info(
                "switch.postponed", project=project, attempt=attempt, error=str(error), done=done
            )
        if done:
            log.info("generation.switched", project=project, generation=generation.id)
            return
        await asyncio.sleep(PAUSE_SECONDS)
    raise Unavailable(
        f"generation {generation.id} of {project} could not be made live: the write load is too "
        "high",
        "try again when fewer changes arrive",
    )


async def _is_live(database: Database, generation: Generation) -> bool:
    """Return whether the generation is live: the commit may have succeeded without a reply."""
    async with database.scope(generation.project_id) as connection:
        return (await catalog.live(connection, generation.project_id)).id == generation.id


async def _try_switch(database: Database, catch_up: CatchUp) -> bool:
    """Try to switch once. Returns False if too much is missing to catch up while writers wait."""
    live, generation = catch_up.live, catch_up.builder.generation
    async with (
        asyncio.timeout(LIMIT_SECONDS),
        exclusive(database, live.project_id) as connection,
    ):
        if not await catch_up.finish():
            return False
        await switch(connection, live, generation)
        failpoint("replay.switching")
    return True
