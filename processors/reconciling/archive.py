"""The archive: is every file whole, and everything in it that the archiver has acknowledged?"""

from __future__ import annotations

from collections.abc import Iterable

from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Subject
from processors.reconciling.ledger import subject_of
from processors.reconciling.rearchiving import unarchived

__all__ = ["find_archive_drifts"]

_RESTORE = "restore these files from a backup of the archive"


async def find_archive_drifts(case: Case) -> list[Drift]:
    """Damaged, missing and needless files, lost contents, changes that were never archived."""
    archive = case.desk.tools.archive
    check = await archive.check(case.project)
    statistics = await archive.statistics(case.project)
    complete_from = (statistics.complete_from if statistics else None) or 0
    unfiled = [subject_of(entry) for entry in unarchived(case, complete_from)]
    damaged = [Subject(f"{file.path}: {file.reason}", file.path) for file in check.damaged]
    return [
        *case.drift("archive.damaged", damaged, "files aren't as they were written"),
        *case.drift("archive.missing", _paths(check.missing), "files aren't there"),
        *case.drift(
            "archive.lost_contents",
            _paths(check.lost_contents),
            "contents that changes refer to are nowhere",
            cure=_RESTORE,
        ),
        *case.drift(
            "archive.unarchived",
            unfiled,
            "the archiver has acknowledged changes that the archive doesn't have",
        ),
        *case.drift("archive.orphans", _paths(check.orphans), "files that the index doesn't know"),
    ]


def _paths(names: Iterable[str]) -> list[Subject]:
    return [Subject(name, name) for name in names]
