"""Background task of a worker that writes the contexts of all live generations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from time import monotonic

import structlog

from processors.contexts.stage import ContextProgress, ContextStage
from runtime import metrics
from runtime.lifespan import wait_for_tick
from store.generations import catalog
from store.generations.catalog import Generation, ProjectGone, Projects
from store.postgres.pool import Database
from store.search.due_projects import DueProject, DueProjects, Task

__all__ = ["ContextMaintenance"]

log = structlog.get_logger(__name__)

INTERVAL = timedelta(seconds=1)
RETRY_AFTER = timedelta(seconds=30)
"""Pause of a project after its model failed, or while another process writes contexts."""

BUDGET_PAUSE = timedelta(minutes=5)
"""Pause of a project after the budget was spent. On the next day the budget is new, so the
documents that waited get their contexts then."""

VECTOR_PAUSE = timedelta(seconds=5)
"""Pause of a project whose documents wait for vectors first. Nothing notes it when they have them,
so its note stays until then."""

_REASONS = ("budget", "price")


class ContextMaintenance:
    """Runs the stage for projects that were written to recently, or that have documents left.

    Any number of workers may run it: an advisory lock lets one of them work at a time.
    """

    def __init__(self, database: Database, projects: Projects, stage: ContextStage) -> None:
        self._database = database
        self._projects = projects
        self._stage = stage
        self._noted = DueProjects(database, Task.CONTEXTS)
        self._paused: dict[int, float] = {}
        self._postponed: set[tuple[str, str]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set; failures are logged, and retried later."""
        while not stop.is_set():
            try:
                is_active = await self.run_once()
            except Exception as error:  # noqa: BLE001 - it must not end the worker
                is_active = True
                log.warning("contexts.failed", error=repr(error))
            await wait_for_tick(stop, INTERVAL if is_active else INTERVAL * 5)

    async def run_once(self) -> bool:
        """Do all that is due, one project after the other; false if nothing was due.

        Raises:
            Unavailable: Postgres cannot be reached.
        """
        due = self._due(await self._noted.noted())
        if not due:
            return False
        names = {project_id: name for name, project_id in (await self._projects.all()).items()}
        for project in due:
            self._paused.pop(project.project_id, None)
            name = names.get(project.project_id)
            if name is None or await self._work(name, project.project_id):
                await self._noted.settle([project])
        return True

    def _due(self, noted: Iterable[DueProject]) -> list[DueProject]:
        """Projects whose pause is over; another process may have written their contexts since."""
        now = monotonic()
        by_id = {project.project_id: project for project in noted}
        rested = [project_id for project_id, until in self._paused.items() if until <= now]
        for project_id in rested:
            by_id.setdefault(project_id, DueProject(project_id, (), frozenset()))
        return [
            project
            for project_id, project in sorted(by_id.items())
            if self._paused.get(project_id, now) <= now
        ]

    async def _work(self, project: str, project_id: int) -> bool:
        """Run the stage for one project; pause the project and return false if work is left."""
        try:
            live = await self._live(project_id)
            if not live.recipe.context:
                return True
            progress = await self._stage.run(project, live)
        except ProjectGone:
            return True
        except Exception as error:  # noqa: BLE001 - one project's failure must not stop the others
            progress = ContextProgress(failure=error)
        self._show(project, progress)
        if progress.failure is not None:
            log.warning("contexts.failed", project=project, error=str(progress.failure))
        pause = _pause(progress)
        if pause is None:
            return True
        self._paused[project_id] = monotonic() + pause.total_seconds()
        return False

    async def _live(self, project_id: int) -> Generation:
        async with self._database.scope(project_id) as connection:
            return await catalog.live(connection, project_id)

    def _show(self, project: str, progress: ContextProgress) -> None:
        """Update the gauge of postponed documents, and log when a reason begins or ends."""
        for reason in _REASONS:
            documents = progress.postponed.get(reason, 0)
            if "busy" in progress.postponed:
                documents = 0  # the process that writes contexts counts them
            metrics.CONTEXTS_POSTPONED.set(documents, project=project, reason=reason)
            key = project, reason
            if documents and key not in self._postponed:
                self._postponed.add(key)
                log.warning(
                    "contexts.postponed", project=project, reason=reason, documents=documents
                )
            elif not documents and key in self._postponed:
                self._postponed.discard(key)
                log.info("contexts.resumed", project=project, reason=reason)


def _pause(progress: ContextProgress) -> timedelta | None:
    """Pause of a project after a run; None if no work is left."""
    if progress.failure is not None or "busy" in progress.postponed:
        return RETRY_AFTER
    if "vectors" in progress.postponed:
        return VECTOR_PAUSE
    return BUDGET_PAUSE if progress.postponed else None
