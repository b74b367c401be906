"""Repair of the archive from the streams and Postgres, as far as they still have the data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from events.names import ARCHIVER
from events.streams.changes import LoggedChange
from processors.doctor.context import ProjectContext, contents_in_streams, whole_changes
from processors.doctor.findings import Finding, subjects_of
from processors.doctor.stream_snapshot import StreamEntry
from store.archive.repair import ArchiveRepair

__all__ = ["rearchive", "settle_orphans", "unarchived"]

_CHANGES_AT_ONCE = 200


async def rearchive(context: ProjectContext, findings: Sequence[Finding]) -> list[str]:
    """Archive missing changes, and replace damaged or missing files.

    Returns what can't be replaced, and why.
    """
    paths = [subject.key for subject in subjects_of(findings) if isinstance(subject.key, str)]
    missing = unarchived(context)
    archive_repair = _archive_repair(context)
    failures = await archive_repair.contents(paths, partial(contents_in_streams, context))
    failures += await archive_repair.events(paths, [entry.change for entry in missing])
    await _append(context, missing)
    return failures


def unarchived(context: ProjectContext, complete_from: int = 0) -> list[StreamEntry]:
    """Changes that the archiver has acknowledged, but that are not in any readable file."""
    log = context.log
    return [
        entry
        for entry in log.entries
        if log.streams.handled(ARCHIVER, entry)
        and entry.change.log_position not in log.archived
        and entry.change.position >= complete_from
    ]


async def settle_orphans(context: ProjectContext, _: Sequence[Finding]) -> list[str]:
    """Add intact orphan files to the archive's index, and remove the others."""
    await _archive_repair(context).orphans()
    return []


async def _append(context: ProjectContext, entries: Sequence[StreamEntry]) -> None:
    archive = context.tools.archive
    batch: list[LoggedChange] = []
    async for change in whole_changes(context, entries):
        batch.append(change)
        if len(batch) == _CHANGES_AT_ONCE:
            await archive.append(context.project, batch)
            batch = []
    await archive.append(context.project, batch)


def _archive_repair(context: ProjectContext) -> ArchiveRepair:
    tools = context.tools
    return ArchiveRepair(
        tools.database,
        tools.settings.archive_location,
        context.project,
        context.generation.project_id,
    )
