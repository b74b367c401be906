"""The doctor: examines projects, repairs what it finds, and examines again.

Each examination reads one snapshot of Postgres. Redis and the archive are read before it, so that
an in-flight change is not reported. A second examination removes the remaining false findings:
only what both find counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from events.names import LogPosition
from processors.doctor.checks.log import letters_by_project
from processors.doctor.checks.registry import CHECKS
from processors.doctor.context import ProjectContext, StoredIndex, read_log
from processors.doctor.findings import Finding, Severity
from processors.doctor.repairs.registry import repair_findings
from processors.doctor.stream_snapshot import Streams, read_streams
from processors.wiring.operator_tools import OperatorTools
from store.documents.digests import stored_documents
from store.documents.fence import tombstones_below
from store.generations.catalog import Recipe
from store.inspection.snapshot import snapshot
from store.sources import names_of

__all__ = ["Doctor", "Health"]


@dataclass(frozen=True)
class Health:
    """Findings about one project.

    ``findings`` were made before the repair, ``remaining`` after it; without a repair both are
    equal. ``failures``: reasons of incomplete repairs. ``digest``: digest of the index at the last
    examination, in hex.
    """

    project: str
    generation: int
    documents: int
    digest: str
    findings: Sequence[Finding]
    remaining: Sequence[Finding]
    failures: Sequence[str] = ()

    @property
    def is_healthy(self) -> bool:
        """Return whether nothing remains that needs a repair."""
        return not any(finding.severity is Severity.PROBLEM for finding in self.remaining)


@dataclass(frozen=True)
class _RedisSnapshot:
    """Streams and dead letters. ``letters``: see ``letters_by_project``."""

    letters: Mapping[str, Mapping[LogPosition, str]]
    streams: Streams


@dataclass(frozen=True)
class _Examination:
    """One examination of a project."""

    context: ProjectContext
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Doctor:
    """Examination of the live generations.

    ``configured`` and ``lease``: see ``ProjectContext``. ``settle``: time between two examinations.
    """

    tools: OperatorTools
    configured: Recipe | None
    lease: timedelta
    settle: timedelta = timedelta(seconds=3)

    async def examine(self, projects: Sequence[str], *, repair: bool = False) -> list[Health]:
        """Examine projects one after the other, and repair problems if ``repair`` is set.

        Raises:
            Unavailable: a server can't be reached.
        """
        redis = await self._read_redis()
        return [await self._health(project, redis, repair=repair) for project in projects]

    async def _health(self, project: str, redis: _RedisSnapshot, *, repair: bool) -> Health:
        """Examine one project, and again after a repair."""
        before = await self._confirmed(project, redis)
        problems = [finding for finding in before.findings if finding.severity is Severity.PROBLEM]
        if not (repair and problems):
            return _health_of(before)
        failures = await repair_findings(before.context, problems)
        after = await self._confirmed(project, await self._read_redis())
        return replace(_health_of(after), findings=before.findings, failures=failures)

    async def _confirmed(self, project: str, redis: _RedisSnapshot) -> _Examination:
        """Examine twice; keep only the findings of both: changes may be in flight."""
        first = await self._examine(project, redis)
        if not first.findings:
            return first
        await asyncio.sleep(self.settle.total_seconds())
        second = await self._examine(project, await self._read_redis())
        return replace(second, findings=_agreed(first.findings, second.findings))

    async def _read_redis(self) -> _RedisSnapshot:
        tools = self.tools
        letters = await letters_by_project(tools.redis, tools.names)
        streams = await read_streams(tools.redis, tools.names, tools.admission.admitted)
        return _RedisSnapshot(letters, streams)

    async def _examine(self, project: str, redis: _RedisSnapshot) -> _Examination:
        tools = self.tools
        generation = await tools.store.generation(project)
        letters = redis.letters.get(project, {})
        verdicts = await tools.document_positions.verdicts(generation.project_id, letters)
        rejected = await tools.document_positions.rejected(generation.project_id)
        rejected |= letters.keys() - verdicts.keys()
        log = await read_log(project, tools.archive, redis.streams, rejected, letters)
        async with snapshot(tools.database, generation) as connection:
            index = StoredIndex(log.fold)
            async for row in stored_documents(connection, generation.id):
                index.add(row)
            context = ProjectContext(
                project=project,
                generation=generation,
                tools=tools,
                configured=self.configured,
                lease=self.lease,
                log=log,
                connection=connection,
                index=index,
                sources=await names_of(connection, generation.project_id),
                tombstones_below=await tombstones_below(connection, generation.project_id),
            )
            findings = [finding for check in CHECKS.values() for finding in await check(context)]
        return _Examination(context, findings)


def _agreed(first: Sequence[Finding], second: Sequence[Finding]) -> list[Finding]:
    before = {(finding.name, subject) for finding in first for subject in finding.subjects}
    agreed = []
    for finding in second:
        subjects = tuple(
            subject for subject in finding.subjects if (finding.name, subject) in before
        )
        if subjects:
            agreed.append(replace(finding, subjects=subjects))
    return agreed


def _health_of(examination: _Examination) -> Health:
    context = examination.context
    return Health(
        project=context.project,
        generation=context.generation.id,
        documents=context.index.living,
        digest=context.index.digest(),
        findings=examination.findings,
        remaining=examination.findings,
    )
