"""Entries that can't be processed, and what an operator does with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from events.models import content_hash
from events.names import LogPosition, Names, Topic
from events.server.connection import connect
from events.streams.changes import LoggedChange
from events.streams.dead_letters import DeadLetter, DeadLetters
from processors.indexing.preparation import ResolvedDocument, Resolver
from runtime.settings import LOCAL_MODEL
from store.generations.catalog import Recipe
from store.store import Store
from tests.support.running import Headrace
from tests.support.writes import opened

__all__ = ["Defect", "add_entry", "is_handled", "keep_content", "letters", "redrive"]


class Defect:
    """A defect in indexing, which the document ``uri`` meets until it is repaired."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
        self._is_repaired = False
        resolve = Resolver._resolve

        async def raising(resolver: Resolver, change: LoggedChange) -> ResolvedDocument:
            if not self._is_repaired and change.event.data.uri == uri:
                raise ZeroDivisionError("a defect")
            return await resolve(resolver, change)

        monkeypatch.setattr(Resolver, "_resolve", raising)

    def repair(self) -> None:
        """Let the document pass."""
        self._is_repaired = True


async def add_entry(running: Headrace, fields: Any) -> None:
    """Add an entry with these fields to the stream of live changes, as any program can."""
    redis = connect(running.redis_url)
    try:
        await redis.xadd(Names().stream(Topic.CHANGED_LIVE), fields)
    finally:
        await redis.aclose()


async def letters(running: Headrace) -> list[DeadLetter]:
    """The dead letters, newest first."""
    redis = connect(running.redis_url)
    try:
        return await DeadLetters(redis, Names()).list()
    finally:
        await redis.aclose()


async def redrive(running: Headrace, letter: DeadLetter) -> None:
    """Let the event of a letter be processed again."""
    redis = connect(running.redis_url)
    try:
        await DeadLetters(redis, Names()).redrive(letter.id)
    finally:
        await redis.aclose()


async def is_handled(running: Headrace, project: str, letter: DeadLetter) -> bool:
    """True if the change of a letter is applied or superseded."""
    assert letter.position is not None
    change = (project, LogPosition(letter.position, letter.partition))
    async with _store(running) as store:
        return await store.handled([change]) == {change}


async def keep_content(running: Headrace, project: str, content: str) -> None:
    """Store content beside the log, for changes that refer to it by its hash."""
    async with _store(running) as store:
        assert (await store.put(project, content)).sha256 == content_hash(content)


@asynccontextmanager
async def _store(running: Headrace) -> AsyncIterator[Store]:
    async with opened(running.database.worker_url) as postgres:
        yield Store(postgres, Recipe(LOCAL_MODEL))
