"""I6: after a last sync the index equals the sources, after any faults of syncs and servers.

``HEADRACE_TEST_SEEDS=200`` runs as many histories.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from events.models import content_hash
from processors.embedders.local.tokenizer import TokenCounter, tokenizer_path
from runtime.failpoints import SYNC_POINTS
from tests.chaos.histories import (
    BucketHistory,
    DirectoryHistory,
    GitHistory,
    History,
    ImportHistory,
    MirrorHistory,
    SiteHistory,
    ThreadHistory,
    WorkTreeHistory,
)
from tests.chaos.replays import Strike
from tests.chaos.runs import Chaos, Run
from tests.chaos.seeds import seeds
from tests.chaos.wholeness import assert_nothing_left_over, assert_whole
from tests.support.cli import Command, Result
from tests.support.crashable_redis import CrashableRedis
from tests.support.github import github
from tests.support.s3 import s3_server
from tests.support.waiting import eventually, within
from tests.support.website import Website, website

PROJECT = "mill"
THREADS = "threads"
TREES = "trees"
ROUNDS = 4
"""Events of a history beside a kill of all syncs and one of a watch."""
SYNC_SECONDS = 120.0
LONGEST_LIFE_SECONDS = 0.4
"""Longest life of a sync that is killed: some die before they publish, some between batches."""
LONGEST_WATCH_SECONDS = 2.0
"""Longest life of a watch after a change; it publishes the change after 0.3 to 2 s."""


@dataclass(frozen=True)
class Synced:
    """Source with the options of its sync."""

    history: History
    prefix: str = ""
    project: str = PROJECT

    @property
    def arguments(self) -> list[str]:
        """Arguments of ``headrace``."""
        if self.is_served:
            return self.history.arguments
        prefix = ["--prefix", self.prefix] if self.prefix else []
        return [*self.history.arguments, "--project", self.project, *prefix]

    @property
    def is_served(self) -> bool:
        """True if a gateway syncs the source."""
        return isinstance(self.history, MirrorHistory)

    @property
    def is_watchable(self) -> bool:
        """True if ``headrace watch`` can follow the source."""
        return isinstance(self.history, DirectoryHistory) and self.arguments[:2] == [
            "sync",
            str(self.history.path),
        ]


@dataclass
class Scene:
    """Run with its sources and possible events."""

    run: Run
    sources: list[Synced]
    rng: random.Random
    events: list[str] = field(default_factory=list)

    @property
    def base(self) -> Synced:
        """Repository whose linked work tree is an overlay of it."""
        [base, _] = [source for source in self.sources if source.project == TREES]
        return base

    @property
    def overlay(self) -> Synced:
        """Linked work tree."""
        [_, overlay] = [source for source in self.sources if source.project == TREES]
        return overlay

    async def begin(self) -> None:
        """Sync the repository once, without which its work tree would not be an overlay."""
        await self._sync(self.base)

    async def play(self) -> None:
        """Change some sources before each random event."""
        events = [*self.rng.choices(self._events(), k=ROUNDS), self._all_killed, self._watched]
        self.rng.shuffle(events)
        for event in events:
            for source in self.rng.sample(self.sources, self.rng.randint(1, len(self.sources))):
                source.history.advance()
            self.events.append(event.__name__)
            await event()

    async def converge(self) -> None:
        """Kill a sync of each source a last time; the next ones publish what is missing.

        No worker has applied anything of the killed ones when the next ones compare the index. Only
        the overlay is synced after that, because it is compared with its base.
        """
        worker = self.run.workers[-1]
        worker.send(signal.SIGSTOP)
        for source in self.sources:
            source.history.advance()
        await self._all_killed()
        for source in self.sources:
            self._undo_or_advance(source.history)
        others = [source for source in self.sources if source is not self.overlay]
        results = await asyncio.gather(*map(self._sync, others))
        worker.send(signal.SIGCONT)
        for source in (self.base, self.overlay):
            others.append(source)
            results.append(await self._sync(source, "--wait"))
        for source, result in zip(others, results, strict=True):
            is_synced = "hook.synced" in result.stderr if source.is_served else result.code == 0
            assert is_synced, (self.events, source.arguments, result)

    def _events(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        return [
            *(self._synced, self._synced_together, self._overlapping, self._flushed),
            *(self._all_killed, self._watched, self._lost_before_it_was_read, self._restarted),
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
        await asyncio.gather(self._end(source, first), self._end(source, second))

    async def _all_killed(self) -> None:
        """Kill a sync of each source (SIGKILL), at a time of its own or at a failpoint."""
        points = [self.rng.choice([None, *SYNC_POINTS]) for _ in self.sources]
        lives = [self.rng.uniform(0, LONGEST_LIFE_SECONDS) for _ in self.sources]
        await asyncio.gather(*map(self._killed, self.sources, points, lives))
        await self._end_leases()

    def _undo_or_advance(self, history: History) -> None:
        """Let most sources equal the index again, from which the killed syncs differed."""
        if isinstance(history, DirectoryHistory) and self.rng.random() < 0.7:
            history.undo()
        else:
            history.advance()

    async def _end_leases(self) -> None:
        """End the leases of killed syncs, for which the next ones would wait 30 s."""
        owner = await asyncpg.connect(self.run.database.owner_url)
        try:
            await owner.execute("UPDATE sources SET lease_until = clock_timestamp()")
        finally:
            await owner.close()

    async def _killed(self, source: Synced, point: str | None, seconds: float) -> None:
        if point is None:
            command = await self._start(source)
            await asyncio.sleep(seconds)
        else:
            command = await self._start(source, strike=Strike(point))
            with suppress(AssertionError):  # a sync without changes does not pass it
                await eventually(lambda: not command.is_running, "it is killed", timeout=2)
        command.send(signal.SIGKILL)
        await command.result(SYNC_SECONDS)

    async def _watched(self) -> None:
        """Change a source while it is watched, and kill the watch (SIGKILL)."""
        source = self.rng.choice([source for source in self.sources if source.is_watchable])
        command = await Command.start(
            "watch", *source.arguments[1:], environment=self.run.environment
        )
        for _ in range(self.rng.randint(1, 3)):
            await asyncio.sleep(self.rng.uniform(0, LONGEST_WATCH_SECONDS))
            source.history.advance()
        await asyncio.sleep(self.rng.uniform(0, LONGEST_WATCH_SECONDS))
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

    async def _start(self, source: Synced, *options: str, strike: Strike | None = None) -> Command:
        environment = self.run.environment | {"HEADRACE_LOG_LEVEL": "info"}
        armed = () if strike is None else strike.arguments
        return await Command.start(
            *source.arguments, *options, environment=environment, strike=armed
        )

    async def _sync(self, source: Synced, *options: str) -> Result:
        return await self._end(source, await self._start(source, *options))

    async def _end(self, source: Synced, command: Command) -> Result:
        """Wait for the end of a sync; a gateway is killed after its first one."""
        if source.is_served:
            with suppress(AssertionError):  # its output shows why it has not synced
                await eventually(
                    lambda: "hook.synced" in command.printed() or not command.is_running,
                    "the gateway has synced its hook",
                    timeout=SYNC_SECONDS,
                )
            command.send(signal.SIGKILL)
        return await command.result(SYNC_SECONDS)


@pytest.mark.parametrize("seed", seeds())
async def test_the_index_equals_the_sources(
    chaos: Chaos, own_redis: CrashableRedis, tmp_path: Path, seed: int
) -> None:
    """I6 holds after overlapping and killed syncs, lost streams and killed workers."""
    rng = random.Random(seed)
    with website() as site, github() as server, s3_server(tmp_path) as storage:
        async with chaos(seed, scenario="source histories", redis_url=own_redis.url) as run:
            sources = _sources(tmp_path / "sources", rng, site)
            bucket = BucketHistory(tmp_path / "bucket" / "docs", "marble", rng)
            mirror = MirrorHistory(tmp_path / "sources" / "mirrored", "slate", rng)
            sources += [
                Synced(bucket, prefix="bucket/"),
                Synced(mirror, prefix="mirrored/"),
                Synced(ThreadHistory("schist", rng, server), project=THREADS),
            ]
            hooks = {"HEADRACE_GATEWAY": mirror.setting(PROJECT, "mirrored/")}
            run.environment.update(server.environment | storage | hooks)
            scene = Scene(run, sources, rng)
            await run.worker()
            await scene.begin()
            await scene.play()
            await scene.converge()
            async with within(60):
                await _assert_equal(run, scene)


def _sources(directory: Path, rng: random.Random, site: Website) -> list[Synced]:
    """Sources in files, sometimes with a second checkout of the repository, and a site."""
    repository = GitHistory(directory / "repository", "granite", rng)
    sources = [
        Synced(repository),
        Synced(repository, project=TREES),
        Synced(repository.linked(directory / "linked"), project=TREES),
        Synced(DirectoryHistory(directory / "notes", "basalt", rng), prefix="notes/"),
        Synced(WorkTreeHistory(directory / "tree", "quartz", rng), prefix="tree/"),
        Synced(ImportHistory(directory / "export", "flint", rng), prefix="export/"),
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

        threads = scene.sources[-1].history.listing()
        for project, texts in ((PROJECT, expected), (THREADS, threads)):
            hashes = {uri: content_hash(text) for uri, text in texts.items()}
            await _until_indexed(owner, project, hashes, scene)
        await eventually(covered, "every chunk has its vector", timeout=60, every=0.1)
        counter = TokenCounter(tokenizer_path(None))
        try:
            await assert_whole(owner, PROJECT, expected, counter)
        except AssertionError as error:
            error.add_note(f"I6 after {scene.events}")
            raise
        await _assert_overlaid(owner, scene)
        await assert_nothing_left_over(owner)
    finally:
        await owner.close()


async def _assert_overlaid(owner: asyncpg.Connection, scene: Scene) -> None:
    """Assert that the base with the overlay is the work tree, and that they have no text in common.

    An empty document of the overlay stands for one that the work tree lacks.
    """
    base, overlay = await _hashes(owner, TREES), await _hashes(owner, TREES, of_overlay=True)
    lacking = {uri for uri, text in overlay.items() if text == content_hash("")}
    seen = {uri: text for uri, text in (base | overlay).items() if uri not in lacking}
    for hashes, source in ((base, scene.base), (seen, scene.overlay)):
        texts = source.history.listing()
        expected = {uri: content_hash(text) for uri, text in texts.items()}
        assert hashes == expected, f"I6 after {scene.events}"
    assert not overlay.items() & base.items()
    assert lacking <= base.keys()


async def _until_indexed(
    owner: asyncpg.Connection, project: str, expected: Mapping[str, str], scene: Scene
) -> None:
    """Wait for the changes of the last syncs, which end when they have published them."""

    async def is_equal() -> bool:
        return await _hashes(owner, project) == expected

    with suppress(AssertionError):
        await eventually(is_equal, "the index equals the sources", timeout=30, every=0.1)
    assert await _hashes(owner, project) == expected, f"I6 after {scene.events}"


async def _hashes(
    owner: asyncpg.Connection, project: str, *, of_overlay: bool = False
) -> dict[str, str]:
    """Hash of each shared document of a project by its uri, or of each document of its overlay."""
    rows = await owner.fetch(
        """
        SELECT d.uri, d.content_hash
          FROM documents d
          JOIN generations g ON g.id = d.generation_id AND g.state = 'live'
          JOIN projects p ON p.id = g.project_id
         WHERE p.name = $1 AND NOT d.deleted AND (d.agent <> '') = $2
        """,
        project,
        of_overlay,
    )
    return {row["uri"]: row["content_hash"] for row in rows}
