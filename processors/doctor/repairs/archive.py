"""Repair of the archive from the streams and Postgres, as far as they still have the data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from events.names import ARCHIVER
from events.streams.changes import LoggedChange
from processors.doctor.context import Case, texts_in_streams, whole_changes
from processors.doctor.findings import Subject
from processors.doctor.stream_snapshot import StreamEntry
from store.archive.repair import ArchiveRepair

__all__ = ["rearchive", "see_to_orphans", "unarchived"]

_CHANGES_AT_ONCE = 200


async def rearchive(case: Case, subjects: Sequence[Subject]) -> list[str]:
    """Archive missing changes, and replace damaged or missing files.

    Returns what can't be replaced, and why.
    """
    paths = [subject.key for subject in subjects if isinstance(subject.key, str)]
    lost = unarchived(case)
    archive_repair = _archive_repair(case)
    failures = await archive_repair.contents(paths, partial(texts_in_streams, case))
    failures += await archive_repair.events(paths, [entry.change for entry in lost])
    await _append(case, lost)
    return failures


def unarchived(case: Case, complete_from: int = 0) -> list[StreamEntry]:
    """Changes that the archiver has acknowledged, but that are not in any readable file."""
    evidence = case.evidence
    return [
        entry
        for entry in evidence.entries
        if evidence.streams.handled(ARCHIVER, entry)
        and entry.change.log_position not in evidence.archived
        and entry.change.position >= complete_from
    ]


async def see_to_orphans(case: Case, _: Sequence[Subject]) -> list[str]:
    """Add intact orphan files to the archive's index, and remove the others."""
    await _archive_repair(case).deleted_rows()
    return []


async def _append(case: Case, entries: Sequence[StreamEntry]) -> None:
    archive = case.desk.tools.archive
    batch: list[LoggedChange] = []
    async for change in whole_changes(case, entries):
        batch.append(change)
        if len(batch) == _CHANGES_AT_ONCE:
            await archive.append(case.project, batch)
            batch = []
    await archive.append(case.project, batch)


def _archive_repair(case: Case) -> ArchiveRepair:
    tools = case.desk.tools
    return ArchiveRepair(
        tools.database, tools.settings.archive_location, case.project, case.generation.project_id
    )
