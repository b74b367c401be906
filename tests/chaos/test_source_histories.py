"""I6: after a last sync the index equals the sources, after any faults of syncs and servers.

``HEADRACE_TEST_SEEDS=200`` runs as many histories.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from events.models import content_hash
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from tests.chaos.histories import DirectoryHistory, GitHistory, History, SiteHistory, ThreadHistory
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds
from tests.chaos.wholeness import assert_nothing_left_over, assert_whole
from tests.support.cli import Command, Result
from tests.support.crashable_redis import CrashableRedis
from tests.support.github import github
from tests.support.waiting import eventually, within
from tests.support.website import Website, website

PROJECT = "mill"
THREADS = "threads"
ROUNDS = 6
SYNC_SECONDS = 120.0
LONGEST_LIFE_SECONDS = 0.4
"""Longest life of a sync that is killed: some die before they publish, some between batches."""


@dataclass(frozen=True)
class Synced:
    """Source with the options of its sync."""

    history: History
    prefix: str = ""
    project: str = PROJECT

    @property
    def arguments(self) -> list[str]:
        """Arguments of ``headrace``."""
        prefix = ["--prefix", self.prefix] if self.prefix else []
        return [*self.history.arguments, "--project", self.project, *prefix]


@dataclass
class Scene:
    """Run with its sources and possible events."""

    run: Run
    sources: list[Synced]
    rng: random.Random
    events: list[str] = field(default_factory=list)

    async def one_round(self) -> None:
        """Change some sources, and run one random event."""
        for source in self.rng.sample(self.sources, self.rng.randint(1, len(self.sources))):
            source.history.advance()
        event = self.rng.choice(self._events())
        self.events.append(event.__name__)
        await event()

    async def converge(self) -> None:
        """Sync each source a last time, with all servers and a worker running."""
        await self.run.worker()
        for source in self.sources:
            result = await self._sync(source, "--wait")
            assert result.code == 0, (self.events, result)

    def _events(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [
            *(self._synced, self._synced_together, self._overlapping, self._killed, self._flushed),
            *(self._lost_before_it_was_read, self._restarted),
        ]

    async def _synced(self) -> None:
        await self._sync(self._any())

    async def _synced_together(self) -> None:
        """Sync all sources at the same time."""
        await asyncio.gather(*(self._sync(source) for source in self.sources))

    async def _overlapping(self) -> None:
        """Run two syncs of a source; the first sees an older state and may be stopped."""
        source = self._any()
        first = await self._start(source)
        await asyncio.sleep(self.rng.uniform(0, LONGEST_LIFE_SECONDS))
        if self.rng.random() < 0.5:
            first.send(signal.SIGSTOP)
        source.history.advance()
        second = await self._start(source)
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_LIFE_SECONDS * 2):
                await eventually(lambda: not second.is_running, "the second ends", timeout=60)
        first.send(signal.SIGCONT)
        await asyncio.gather(first.result(SYNC_SECONDS), second.result(SYNC_SECONDS))

    async def _killed(self) -> None:
        """Kill a sync (SIGKILL)."""
        command = await self._start(self._any())
        await asyncio.sleep(self.rng.uniform(0, LONGEST_LIFE_SECONDS))
        command.send(signal.SIGKILL)
        await command.result(SYNC_SECONDS)

    async def _flushed(self) -> None:
        """Flush Redis."""
        await self._sync(self._any())
        await self.run.redis.flushall()

    async def _lost_before_it_was_read(self) -> None:
        """Flush Redis after a sync has published and before a worker reads."""
        worker = self.run.workers[-1]
        worker.send(signal.SIGSTOP)
        await self._sync(self._any())
        await self.run.redis.flushall()
        worker.send(signal.SIGCONT)

    async def _restarted(self) -> None:
        """Kill a worker during its work, and start another."""
        await self._sync(self._any())
        await self.run.workers[-1].kill()
        await self.run.worker()

    def _any(self) -> Synced:
        return self.rng.choice(self.sources)

    async def _start(self, source: Synced, *options: str) -> Command:
        return await Command.start(*source.arguments, *options, environment=self.run.environment)

    async def _sync(self, source: Synced, *options: str) -> Result:
        return await (await self._start(source, *options)).result(SYNC_SECONDS)


@pytest.mark.parametrize("seed", seeds())
async def test_the_index_equals_the_sources(
    chaos: Chaos, own_redis: CrashableRedis, tmp_path: Path, seed: int
) -> None:
    """I6 holds after overlapping and killed syncs, lost streams and killed workers."""
    rng = random.Random(seed)
    with website() as site, github() as server:
        async with chaos(seed, scenario="source histories", redis_url=own_redis.url) as run:
            run.environment.update(server.environment)
            sources = _sources(tmp_path / "sources", rng, site)
            sources.append(Synced(ThreadHistory("schist", rng, server), project=THREADS))
            scene = Scene(run, sources, rng)
            await run.worker()
            for _ in range(ROUNDS):
                await scene.one_round()
            await scene.converge()
            async with within(60):
                await _assert_equal(run, scene)


def _sources(directory: Path, rng: random.Random, site: Website) -> list[Synced]:
    """Repository, sometimes with a second checkout, a directory with its file names, and a site."""
    repository = GitHistory(directory / "repository", "granite", rng)
    sources = [
        Synced(repository),
        Synced(DirectoryHistory(directory / "notes", "basalt", rng), prefix="notes/"),
        Synced(SiteHistory(directory / "site", "gneiss", rng, site)),
    ]
    if rng.random() < 0.5:
        sources.append(Synced(repository.checkout(directory / "checkout")))
    return sources


async def _assert_equal(run: Run, scene: Scene) -> None:
    """Assert that the index has the sources' uris, and the chunks of each text."""
    expected = {
        source.prefix + path: text
        for source in scene.sources
        if source.project == PROJECT
        for path, text in source.history.listing().items()
    }
    owner = await asyncpg.connect(run.database.owner_url)
    try:

        async def covered() -> bool:
            return not await owner.fetchval("SELECT count(*) FROM pending_vectors")

        await eventually(covered, "every chunk has its vector", timeout=60, every=0.1)
        counter = TokenCounter(tokenizer_path(None))
        try:
            await assert_whole(owner, PROJECT, expected, counter)
        except AssertionError as error:
            error.add_note(f"I6 after {scene.events}")
            raise
        threads = scene.sources[-1].history.listing()
        assert await _hashes(owner, THREADS) == {
            uri: content_hash(text) for uri, text in threads.items()
        }, f"I6 after {scene.events}"
        await assert_nothing_left_over(owner)
    finally:
        await owner.close()


async def _hashes(owner: asyncpg.Connection, project: str) -> dict[str, str]:
    """Hash of each document of a project by its uri."""
    rows = await owner.fetch(
        """
        SELECT d.uri, d.content_hash
          FROM documents d
          JOIN generations g ON g.id = d.generation_id AND g.state = 'live'
          JOIN projects p ON p.id = g.project_id
         WHERE p.name = $1 AND NOT d.deleted
        """,
        project,
    )
    return {row["uri"]: row["content_hash"] for row in rows}
