"""Checks of the archive: intact files, and no acknowledged change missing from them."""

from __future__ import annotations

from collections.abc import Iterable

from processors.doctor.checks.log import subject_of
from processors.doctor.context import Case
from processors.doctor.findings import Drift, Subject
from processors.doctor.repairs.archive import unarchived

__all__ = ["find_archive_drifts"]

_RESTORE = "restore these files from a backup of the archive"


async def find_archive_drifts(case: Case) -> list[Drift]:
    """Find damaged, missing and orphaned files, lost contents and changes never archived."""
    archive = case.desk.tools.archive
    check = await archive.check(case.project)
    statistics = await archive.statistics(case.project)
    complete_from = (statistics.complete_from if statistics else None) or 0
    unfiled = [subject_of(entry) for entry in unarchived(case, complete_from)]
    damaged = [Subject(f"{file.path}: {file.reason}", file.path) for file in check.damaged]
    return [
        *case.drift("archive.damaged", damaged, "files differ from what was written"),
        *case.drift("archive.missing", _paths(check.missing), "files are missing"),
        *case.drift(
            "archive.lost_contents",
            _paths(check.lost_contents),
            "contents that changes refer to are not stored anywhere",
            remedy=_RESTORE,
        ),
        *case.drift(
            "archive.unarchived",
            unfiled,
            "the archiver has acknowledged changes that the archive does not contain",
        ),
        *case.drift(
            "archive.orphans", _paths(check.orphans), "files are not in the archive's index"
        ),
    ]


def _paths(names: Iterable[str]) -> list[Subject]:
    return [Subject(name, name) for name in names]
