"""Diagnosis by ``doctor``: the environment first, then, if that works, each project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.servers import require_database
from processors.doctor.checks.environment import Environment, check_models, check_orphans
from processors.doctor.doctor import Doctor, Health
from processors.doctor.findings import Condition, State
from processors.recipes import chooses_models, model_options, recipe_of
from processors.wiring.operator_tools import OperatorTools, open_operator_tools
from runtime.errors import HeadraceError, UnknownProject, UsageError
from runtime.settings import Settings

__all__ = ["Diagnosis", "diagnose"]

_NEEDED = ("redis", "postgres")


@dataclass(frozen=True)
class Diagnosis:
    """Result of ``doctor``. ``unexamined`` is the reason why no index was examined, or empty."""

    environment: Sequence[Condition]
    projects: Sequence[Health] = ()
    unexamined: str = ""

    @property
    def is_healthy(self) -> bool:
        """True if nothing needs to be done."""
        return (
            not self.unexamined
            and all(condition.state is not State.PROBLEM for condition in self.environment)
            and all(health.is_healthy for health in self.projects)
        )


async def diagnose(settings: Settings, project: str | None, *, repair: bool) -> Diagnosis:
    """Examine the environment and one project or all; with ``repair``, repair what can be repaired.

    Raises:
        UnknownProject: no project has this name.
        ConfigurationError: a setting is wrong.
    """
    require_database(settings)
    environment = await _environment(settings).decide()
    lacking = [
        condition.name
        for condition in environment
        if condition.state is State.PROBLEM and condition.name.partition(".")[0] in _NEEDED
    ]
    if lacking:
        return Diagnosis(environment, unexamined=f"fix {', '.join(lacking)} first")
    try:
        async with open_operator_tools(settings) as tools:
            return await _examine(tools, environment, project, repair=repair)
    except UsageError:
        raise
    except HeadraceError as error:
        return Diagnosis(environment, unexamined=str(error))


def _environment(settings: Settings) -> Environment:
    return Environment(
        redis_url=settings.redis_url,
        database_url=settings.database_url,
        worker_role=settings.worker_role,
        replica_url=settings.read_database_url,
        home=settings.home_directory,
        archive_url=settings.archive_location,
        models=recipe_of(settings).model_names,
        options=model_options(settings),
    )


async def _examine(
    tools: OperatorTools, environment: list[Condition], project: str | None, *, repair: bool
) -> Diagnosis:
    settings = tools.settings
    projects = await tools.store.projects()
    if project is not None and project not in projects:
        remedy = (
            f"use one of {', '.join(projects)}" if projects else "create it with `headrace sync`"
        )
        raise UnknownProject(f"there is no project {project!r}", remedy)
    environment += await check_models(await _other_models(tools, projects), model_options(settings))
    environment += await check_orphans(
        tools, settings.owner_database_url or None, projects, repair=repair
    )
    configured = recipe_of(settings) if chooses_models(settings) else None
    doctor = Doctor(tools, configured, settings.lease)
    chosen = projects if project is None else [project]
    return Diagnosis(environment, await doctor.examine(chosen, repair=repair))


async def _other_models(tools: OperatorTools, projects: Sequence[str]) -> list[str]:
    """Models of live generations that are not in the settings."""
    used = {
        name
        for project in projects
        for name in (await tools.store.generation(project)).recipe.model_names
    }
    return sorted(used - set(recipe_of(tools.settings).model_names))
