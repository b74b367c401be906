"""The doctor: examines projects, repairs drifts, and examines again.

Each look reads one snapshot of Postgres. Redis and the archive are read before it, so that an
in-flight change is not reported as a drift. The remaining false findings are removed by a second
look: only what both looks find is a drift.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from events.positions import DocumentKey, LogPosition
from processors.doctor.checks.log import letters_by_project
from processors.doctor.checks.registry import CHECKS
from processors.doctor.context import Case, Desk, gather
from processors.doctor.findings import Drift, Severity
from processors.doctor.repairs.registry import repair_drifts
from processors.doctor.stream_snapshot import Streams, read_streams
from runtime.errors import HeadraceError
from store.documents.digests import index_digest, stored_documents
from store.inspection.snapshot import snapshot
from store.sources import names_of

__all__ = ["Doctor", "Health"]


@dataclass(frozen=True)
class Health:
    """Findings about one project.

    ``drifts`` were found before the repair, ``remaining`` after it; without a repair both are
    equal. ``failures``: what could not be repaired, and why. ``digest``: digest of the index at the
    last look, in hex.
    """

    project: str
    generation: int
    documents: int
    digest: str
    drifts: Sequence[Drift]
    remaining: Sequence[Drift]
    failures: Sequence[str] = ()

    @property
    def is_sound(self) -> bool:
        """Return whether nothing remains that needs a repair."""
        return not any(drift.severity is Severity.DRIFT for drift in self.remaining)


@dataclass(frozen=True)
class _Log:
    """The contents of Redis, read before a look. ``letters``: see ``letters_by_project``."""

    letters: Mapping[str, Mapping[LogPosition, str]]
    streams: Streams


@dataclass(frozen=True)
class _Look:
    """One look at a project."""

    case: Case
    drifts: Sequence[Drift]


@dataclass(frozen=True)
class Doctor:
    """Examination of the live generations. ``settle``: the time between two looks."""

    desk: Desk
    settle: timedelta = timedelta(seconds=3)

    async def examine(self, projects: Sequence[str], *, repair: bool = False) -> list[Health]:
        """Examine projects one after the other, and repair drifts if ``repair`` is set.

        Raises:
            Unavailable: a server can't be reached.
        """
        log = await self._read_log()
        return [await self._examine(project, log, repair=repair) for project in projects]

    async def _examine(self, project: str, log: _Log, *, repair: bool) -> Health:
        """Examine one project. A repaired index gets two looks again: changes may be in flight."""
        look = await self._confirmed(project, log)
        drifts = [drift for drift in look.drifts if drift.severity is Severity.DRIFT]
        if not (repair and drifts):
            return _health(look)
        try:
            failures = await repair_drifts(look.case, drifts)
        except HeadraceError as error:
            failures = [str(error)]
        after = await self._confirmed(project, await self._read_log())
        return replace(_health(after), drifts=look.drifts, failures=failures)

    async def _confirmed(self, project: str, log: _Log) -> _Look:
        """Look twice; keep only the drifts that both looks found."""
        look = await self._look(project, log)
        if not look.drifts:
            return look
        await asyncio.sleep(self.settle.total_seconds())
        again = await self._look(project, await self._read_log())
        return replace(again, drifts=_agreed(look.drifts, again.drifts))

    async def _read_log(self) -> _Log:
        tools = self.desk.tools
        letters = await letters_by_project(tools.redis, tools.names)
        return _Log(letters, await read_streams(tools.redis, tools.names, tools.admission.admitted))

    async def _look(self, project: str, log: _Log) -> _Look:
        tools = self.desk.tools
        generation = await tools.store.generation(project)
        letters = log.letters.get(project, {})
        verdicts = await tools.document_positions.verdicts(generation.project_id, letters)
        rejected = await tools.document_positions.rejected(generation.project_id)
        rejected |= letters.keys() - verdicts.keys()
        evidence = await gather(project, tools.archive, log.streams, rejected, letters)
        async with snapshot(tools.database, generation) as connection:
            rows = [row async for row in stored_documents(connection, generation.id)]
            documents = {DocumentKey(row.agent, row.uri): row for row in rows}
            names = await names_of(connection, generation.project_id)
            case = Case(project, generation, self.desk, evidence, connection, documents, names)
            return _Look(case, [drift for find in CHECKS.values() for drift in await find(case)])


def _agreed(first: Sequence[Drift], second: Sequence[Drift]) -> list[Drift]:
    before = {(drift.name, subject) for drift in first for subject in drift.subjects}
    agreed = []
    for drift in second:
        subjects = tuple(subject for subject in drift.subjects if (drift.name, subject) in before)
        if subjects:
            agreed.append(replace(drift, subjects=subjects))
    return agreed


def _health(look: _Look) -> Health:
    case = look.case
    return Health(
        project=case.project,
        generation=case.generation.id,
        documents=sum(not document.deleted for document in case.documents.values()),
        digest=index_digest(case.documents.values()).hex(),
        drifts=look.drifts,
        remaining=look.drifts,
    )
