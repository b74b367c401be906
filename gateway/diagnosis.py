"""What ``doctor`` finds out: first of the environment, then, if that allows it, of each project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.stack import require_database
from processors.recipes import chooses_models, model_options, recipe_of
from processors.reconciling.case import Desk
from processors.reconciling.doctor import Doctor, Health
from processors.reconciling.environment import Environment
from processors.reconciling.findings import Condition, State
from processors.reconciling.models import judge_models
from processors.reconciling.strays import judge_strays
from processors.replaying.opening import Tools, open_tools
from runtime.errors import HeadraceError, UsageError
from runtime.settings import Settings

__all__ = ["Diagnosis", "diagnose"]

_NEEDED = ("redis", "postgres")


@dataclass(frozen=True)
class Diagnosis:
    """What was found. ``unexamined``: why no index could be looked at."""

    environment: Sequence[Condition]
    projects: Sequence[Health] = ()
    unexamined: str = ""

    @property
    def is_sound(self) -> bool:
        """Whether nothing needs to be done."""
        return (
            not self.unexamined
            and all(one.state is not State.PROBLEM for one in self.environment)
            and all(one.is_sound for one in self.projects)
        )


async def diagnose(settings: Settings, project: str | None, *, repair: bool) -> Diagnosis:
    """Examine what the settings name, and one project or all; mend where asked for.

    Raises:
        UsageError: no such project.
        ConfigurationError: a setting is wrong.
    """
    require_database(settings)
    environment = await _environment(settings).judge()
    lacking = [
        one.name
        for one in environment
        if one.state is State.PROBLEM and one.name.partition(".")[0] in _NEEDED
    ]
    if lacking:
        return Diagnosis(environment, unexamined=f"{', '.join(lacking)} must be well first")
    if settings.broker_url.startswith("kafka"):
        return Diagnosis(environment, unexamined="its log is in Kafka, not in Redis Streams")
    try:
        async with open_tools(settings) as tools:
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
        home=settings.home_directory,
        archive_url=settings.archive_location,
        models=recipe_of(settings).model_names,
        options=model_options(settings),
    )


async def _examine(
    tools: Tools, environment: list[Condition], project: str | None, *, repair: bool
) -> Diagnosis:
    settings = tools.settings
    projects = await tools.store.projects()
    if project is not None and project not in projects:
        raise UsageError(f"no project {project}; there are: {', '.join(projects) or 'none'}")
    environment += await judge_models(await _other_models(tools, projects), model_options(settings))
    environment += await judge_strays(
        tools, settings.owner_database_url or None, projects, repair=repair
    )
    desk = Desk(tools, recipe_of(settings) if chooses_models(settings) else None, settings.lease)
    chosen = projects if project is None else [project]
    return Diagnosis(environment, await Doctor(desk).examine(chosen, repair=repair))


async def _other_models(tools: Tools, projects: Sequence[str]) -> list[str]:
    """Models of live generations that the settings don't name."""
    used = {
        name
        for project in projects
        for name in (await tools.store.generation(project)).recipe.model_names
    }
    return sorted(used - set(recipe_of(tools.settings).model_names))
