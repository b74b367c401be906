"""Checks of generations: left unfinished, partly dropped, or made with other models."""

from __future__ import annotations

from collections.abc import Iterator

from processors.recipes import differing, replay_command
from processors.reconciling.case import Case
from processors.reconciling.findings import Drift, Severity, Subject
from store.generations import Generation
from store.inspecting import is_being_replayed

__all__ = ["find_generation_drifts"]


async def find_generation_drifts(case: Case) -> list[Drift]:
    """Find leftovers of replays, unless one is running, and models other than in the settings."""
    tools = case.desk.tools
    every = await tools.store.generations(case.project)
    left = [generation for generation in every if generation.state in {"building", "dropping"}]
    if left and await is_being_replayed(tools.database, case.generation.project_id):
        left = []
    building = [_subject(generation) for generation in left if generation.state == "building"]
    dropping = [_subject(generation) for generation in left if generation.state == "dropping"]
    return [
        *case.drift(
            "generation.unfinished",
            building,
            "a replay stopped early and left a half-built generation",
            cure=f"headrace replay --project {case.project} with the options of that replay, or "
            "headrace replay drop ID",
        ),
        *case.drift("generation.dropping", dropping, "a generation is only partly dropped"),
        *_other_recipe(case),
    ]


def _subject(generation: Generation) -> Subject:
    return Subject(f"generation {generation.id}", generation.id)


def _other_recipe(case: Case) -> Iterator[Drift]:
    if case.desk.wanted is None:
        return
    other = differing(case.generation.recipe, case.desk.wanted)
    subjects = [Subject(f"{kind or 'all kinds'}: {model}", kind) for kind, model in other.items()]
    yield from case.drift(
        "generation.recipe",
        subjects,
        "the settings name other models than the index was made with",
        cure=" && ".join(replay_command(case.project, *choice) for choice in other.items()),
        severity=Severity.NOTE,
    )
