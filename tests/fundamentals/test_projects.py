"""Isolation of projects, and of private documents of agents."""

from __future__ import annotations

import pytest

from headrace import QueryRefused
from tests.support.running import Headrace


async def test_projects_dont_meet(running: Headrace) -> None:
    """A question finds documents of its own project only."""
    await running.change("a.md", "The secret of the mill is its wheel.", project="mill")
    await running.change("a.md", "The secret of the bakery is its oven.", project="bakery")
    for project, word in {"mill": "wheel", "bakery": "oven"}.items():
        answer = await running.client.ask(project, "what is the secret", limit=100)
        assert len(answer.results) == 1
        assert word in answer.results[0].content


async def test_private_documents_are_their_agents_own(running: Headrace) -> None:
    """Two agents may keep private documents under one uri, and neither finds the other's."""
    await running.change("notes.md", "Everybody knows the plan.")
    await running.change("notes.md", "Ada's plan is secret.", agent="ada")
    await running.change("notes.md", "Bob's plan is secret.", agent="bob")

    async def seen(agent: str | None) -> set[str]:
        answer = await running.client.ask("docs", "plan", agent=agent, limit=100)
        return {one.content for one in answer.results}

    assert await seen(None) == {"Everybody knows the plan."}
    assert await seen("ada") == {"Everybody knows the plan.", "Ada's plan is secret."}
    assert await seen("bob") == {"Everybody knows the plan.", "Bob's plan is secret."}


async def test_an_unknown_project_is_refused(running: Headrace) -> None:
    """A misspelt project is refused with an error, not with an empty answer."""
    await running.change("a.md", "Text.")
    with pytest.raises(QueryRefused, match="no project 'doc'") as refused:
        await running.client.ask("doc", "text")
    assert refused.value.code == "UnknownProject"
    assert not refused.value.problem.retryable
