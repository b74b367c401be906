"""Compaction: drops what is past retention, merges small files, and removes leftovers.

It is safe to kill at any moment, and to run beside appends and readers: one transaction makes new
files valid and old ones invalid, and no file is removed before its readers had time to finish.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog

from events.names import LogPosition
from runtime.errors import Unavailable
from store.archive.compaction.content_merge import ContentMerging
from store.archive.compaction.event_merge import EventMerging
from store.archive.compaction.replacement import Replacing
from store.archive.compaction.retention import Retention, position_at, time_of
from store.archive.damage import DamagedSegment
from store.archive.files import Files
from store.archive.index import Index, Review
from store.archive.orphans import adopt_orphans, remove_retired

__all__ = ["GRACE", "Compacted", "Compactor"]

log = structlog.get_logger(__name__)

GRACE = timedelta(hours=1)
"""Time for which a retired file stays readable, and the age from which a file may be an orphan."""


_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of one run. ``damaged``: files that were not changed because they are damaged."""

    freed_bytes: int = 0
    dropped_events: int = 0
    dropped_contents: int = 0
    removed_files: int = 0
    damaged: tuple[DamagedSegment, ...] = ()


class Compactor:
    """Compacts one project at a time."""

    def __init__(self, index: Index, replacing: Replacing, storage: Files) -> None:
        self._index = index
        self._replacing = replacing
        self._storage = storage

    async def compact(
        self,
        project: str,
        project_id: int,
        older_than: datetime,
        rejected: Collection[LogPosition] | None,
        grace: timedelta,
    ) -> Compacted:
        """Compact a project's archive: see ``Archive.compact``.

        Old changes are read only if some became old, or came, since they were read the last time.
        Otherwise nothing can be dropped, and small files are merged.
        """
        async with self._replacing.alone(project_id) as is_locked:
            if not is_locked:
                return Compacted()
            removed = await self._clean_up(project, project_id, datetime.now(UTC) - grace)
            review = await self._review(project_id, older_than)
            if review is None:
                retention, older_than = Retention(0, ()), _NEVER
            else:
                if rejected is None:
                    rejected = await self._index.rejected(project_id)
                retention = Retention(review.limit, rejected)
            try:
                events = await self._events(project, project_id, retention)
            except DamagedSegment as error:
                if await self._damaged(project_id, [error]):
                    raise
                raise Unavailable("a purge moved files; they are compacted the next time") from None
            contents = ContentMerging(
                project_id, self._index, self._storage, self._replacing, older_than
            )
            await contents.run()
            if review is not None and not events.damaged and contents.complete:
                await self._index.note_review(project_id, review)
        result = Compacted(
            events.freed_bytes + contents.freed_bytes,
            events.dropped_events,
            contents.dropped_contents,
            removed,
            await self._damaged(project_id, [*events.damaged, *contents.damaged]),
        )
        _log(project_id, result)
        return result

    async def _damaged(
        self, project_id: int, reports: Sequence[DamagedSegment]
    ) -> tuple[DamagedSegment, ...]:
        """Damage to files that are still in use: a purge may have moved some in between."""
        if not reports:
            return ()
        paths = {self._storage.full(path) for path in await self._index.paths(project_id)}
        return tuple(report for report in reports if report.path in paths)

    async def _review(self, project_id: int, older_than: datetime) -> Review | None:
        """Extent of a run that looks for what to drop; None if nothing became old since the last.

        A file counts as new if it came since then: it may be an orphan with old changes.
        """
        segments = await self._index.segments(project_id)
        packs = await self._index.packs(project_id)
        limit = position_at(older_than)
        numbers = [file.segment_id for file in segments] + [pack.segment_id for pack in packs]
        former = await self._index.last_review(project_id)
        is_due = (
            former is None
            or any(
                file.first_position < limit
                and (file.last_position >= former.limit or file.segment_id > former.newest_file)
                for file in segments
            )
            or any(
                pack.created_at < older_than
                and (
                    pack.created_at >= time_of(former.limit) or pack.segment_id > former.newest_file
                )
                for pack in packs
            )
        )
        return Review(limit, max(numbers, default=0)) if is_due else None

    async def _clean_up(self, project: str, project_id: int, before: datetime) -> int:
        removed = await adopt_orphans(self._index, self._storage, project, project_id, before)
        return removed + await remove_retired(self._index, self._storage, project_id, before)

    async def _events(self, project: str, project_id: int, retention: Retention) -> EventMerging:
        folder = await self._index.folder(project_id)
        merging = EventMerging(
            project, project_id, folder, self._storage, self._replacing, retention
        )
        await merging.run(await self._index.segments(project_id))
        if merging.foreign:
            log.warning(
                "archive.foreign_files",
                project=project,
                paths=[segment.path for segment in merging.foreign],
            )
            await self._index.forget(
                project_id, [segment.segment_id for segment in merging.foreign]
            )
        return merging


def _log(project_id: int, result: Compacted) -> None:
    log.info(
        "archive.compacted",
        project_id=project_id,
        freed_bytes=result.freed_bytes,
        dropped_events=result.dropped_events,
        dropped_contents=result.dropped_contents,
    )
    for error in result.damaged:
        log.warning("archive.damaged", project_id=project_id, path=error.path, reason=error.reason)
