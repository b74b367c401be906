"""Checks of the archive: intact files, and no acknowledged change missing from them."""

from __future__ import annotations

from collections.abc import Iterable

from processors.doctor.checks.log import subject_of
from processors.doctor.context import ProjectContext
from processors.doctor.findings import Finding, Subject
from processors.doctor.repairs.archive import unarchived

__all__ = ["check_archive"]

_RESTORE = "restore these files from a backup of the archive"


async def check_archive(context: ProjectContext) -> list[Finding]:
    """Find damaged, missing and orphaned files, lost contents and changes never archived."""
    archive = context.tools.archive
    check = await archive.check(context.project)
    statistics = await archive.statistics(context.project)
    complete_from = (statistics.complete_from if statistics else None) or 0
    unfiled = [subject_of(entry) for entry in unarchived(context, complete_from)]
    damaged = [Subject(f"{file.path}: {file.reason}", file.path) for file in check.damaged]
    return [
        *context.findings("archive.damaged", damaged, "files differ from what was written"),
        *context.findings("archive.missing", _paths(check.missing), "files are missing"),
        *context.findings(
            "archive.lost_contents",
            _paths(check.lost_contents),
            "contents that changes refer to are not stored anywhere",
            remedy=_RESTORE,
        ),
        *context.findings(
            "archive.unarchived",
            unfiled,
            "the archiver has acknowledged changes that the archive does not contain",
        ),
        *context.findings(
            "archive.orphans", _paths(check.orphans), "files are not in the archive's index"
        ),
    ]


def _paths(names: Iterable[str]) -> list[Subject]:
    return [Subject(name, name) for name in names]
