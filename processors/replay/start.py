"""Preconditions of a replay: validate the request, and determine scope and generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from processors.replay.fold import Fold
from processors.replay.project_log import ProjectLog
from processors.replay.scope import Choice, Scope, choose_scope, instant_of
from processors.replay.verification import Difference, NotSwitched
from processors.wiring.operator_tools import OperatorTools
from runtime.errors import UsageError
from store.generations import catalog
from store.generations.catalog import Generation, Recipe
from store.generations.document_positions import DocumentPosition

__all__ = [
    "begin_or_resume",
    "check_complete",
    "check_models",
    "live_generation",
    "scope_of",
    "store_findings",
    "unfinished",
]

Has = Callable[[DocumentPosition], bool]


async def live_generation(tools: OperatorTools, project: str) -> Generation:
    """Read the generation that a replay will replace. The caller must hold the replay lock.

    Raises:
        UsageError: no such project.
    """
    project_id = await tools.projects.require(project)
    async with tools.database.scope(project_id) as connection:
        return await catalog.live(connection, project_id)


async def check_models(tools: OperatorTools, live_recipe: Recipe, recipe: Recipe) -> None:
    """Make sure that every model has its key, and that new models respond.

    No request is sent to models in use already: the replay may not need them.

    Raises:
        ConfigurationError: no such model, its key is missing, or its provider refuses the key.
        Unavailable: a new model can't be reached.
    """
    for model in recipe.model_names:
        await tools.embedders.loaded(model)
        if model not in live_recipe.model_names:
            await tools.embedders.embedder(model)
    if recipe.context and recipe.context != live_recipe.context:
        await tools.context_models.model(recipe.context)


async def scope_of(tools: OperatorTools, choice: Choice, log: ProjectLog, fold: Fold) -> Scope:
    """Determine the documents that the replay is limited to.

    Raises:
        UsageError: the log has no such event, or does not cover the given time.
    """
    since = choice.since
    if since is not None and fold.found_position is None and instant_of(since) is None:
        fold.found_position = await tools.archive.position_of(log.project, since)
    return choose_scope(choice, fold, await log.beginning(fold), datetime.now(UTC))


async def check_complete(
    live: Generation, tools: OperatorTools, log: ProjectLog, fold: Fold, has: Has
) -> None:
    """Make sure that the log has the last change of every live document.

    ``has`` is called for every live document, and returns whether the fold has its last change.

    Raises:
        NotSwitched: the log lacks one; nothing was built.
    """
    newer = [each async for each in tools.document_positions.of(live) if not has(each)]
    if newer:  # they may have been published after the log was read
        await log.read_new(fold)
    missing = sorted(each.key for each in newer if not has(each))
    if not missing:
        return
    damage = "".join(f"; {error.message}" for error in log.damaged.values())
    remedies = [
        *sorted({error.remedy for error in log.damaged.values()}),
        "publish these documents again (`headrace doctor` shows details)",
    ]
    raise NotSwitched(
        f"the log of {log.project} lacks the last change of {len(missing):,} documents that are "
        f"live: {{documents}}{damage}; the live generation is unchanged",
        ", or ".join(remedies),
        differences=[Difference.of(key, "its last change can't be read") for key in missing],
    )


async def unfinished(tools: OperatorTools, live: Generation) -> Generation | None:
    """The generation that a replay left half built, or None if there is none."""
    async with tools.database.scope(live.project_id) as connection:
        generations = await catalog.listed(connection, live.project_id)
    return next((generation for generation in generations if generation.state == "building"), None)


async def begin_or_resume(
    tools: OperatorTools, live: Generation, recipe: Recipe, scope: Scope, project: str
) -> tuple[Generation, bool]:
    """Create the generation to build, or resume it; return it and whether it was resumed.

    Raises:
        UsageError: a generation is half built with another recipe or for other documents.
    """
    half_built = await unfinished(tools, live)
    if half_built is None:
        async with tools.database.scope(live.project_id) as connection:
            new = await catalog.begin(connection, live.project_id, recipe, scope.as_json())
        return new, False
    if half_built.recipe != recipe or dict(half_built.scope) != scope.as_json():
        raise UsageError(
            f"generation {half_built.id} of {project} is half built with other options "
            f"({_describe_options(half_built)})",
            f"finish it with those, or run `headrace replay drop {half_built.id}`",
        )
    return half_built, True


def _describe_options(generation: Generation) -> str:
    recipe = generation.recipe
    parts: dict[str, Any] = {"model": recipe.model, **recipe.models, "chunking": recipe.chunking}
    parts |= {f"chunking of {name or 'others'}": of for name, of in recipe.strategies.items()}
    if recipe.context:
        parts["context"] = recipe.context
    return ", ".join(f"{name} {value}" for name, value in (parts | dict(generation.scope)).items())


async def store_findings(
    tools: OperatorTools, generation: Generation, findings: Mapping[str, Any]
) -> None:
    """Store findings with the generation."""
    async with tools.database.scope(generation.project_id) as connection:
        await catalog.note(connection, generation, findings)
