"""Refreshes of real sources before a question."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from events.client.operator_client import OperatorClient
from gateway.progress import show_nothing
from gateway.sync.refresh import Refresh, refresh_sources
from gateway.sync.registration import Destination
from gateway.sync.request import SyncRequest
from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.settings import Settings
from sources import open_source
from sources.directory import DirectorySource
from tests.support.databases import Database
from tests.support.repositories import create_repository, write_files
from tests.support.running import headrace
from tests.support.waiting import patience

PROJECT = "plant"
LONGEST = timedelta(seconds=60)


@dataclass
class Deployment:
    """Syncs, refreshes and the uris that a question finds."""

    settings: Settings
    client: OperatorClient

    async def sync(self, path: Path, include: tuple[str, ...] = (), **options: Any) -> None:
        """Sync a source as the command does."""
        worktree = options.pop("worktree", False)
        opened = open_source(path, include, worktree=worktree)
        request = SyncRequest(lambda _: opened, Destination(PROJECT, **options))
        await request.run(self.settings, opened, show_nothing)

    async def refresh(self, longest: timedelta = LONGEST, *, overlay: str | None = None) -> Refresh:
        """Refresh the sources, as for a question in an overlay if there is one."""
        return await refresh_sources(self.settings, PROJECT, longest, overlay=overlay)

    async def find(self, words: str, refresh: Refresh) -> list[str]:
        """Uris that have the words, once the last change of a refresh is searchable."""
        answer = await self.client.ask(PROJECT, words, mode="keyword", min_event=refresh.token)
        return sorted(result.citation.uri for result in answer.results)


@pytest.fixture
async def deployment(
    redis_url: str, database: Database, tmp_path: Path
) -> AsyncIterator[Deployment]:
    """Deployment with a worker in this process."""
    settings = Settings(
        home=tmp_path / "home",
        model=HASHING_MODEL,
        redis_url=redis_url,
        database_url=database.operator_url,
    )
    async with headrace(redis_url, database) as running:
        yield Deployment(settings, running.client)


async def test_each_source_is_refreshed_as_it_was_synced(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Included files, prefixes, collections, names and work trees stay; nothing is published twice.

    A source that is gone or replaced, or another machine's, becomes a note or is left alone.
    """
    docs, code, gone = (tmp_path / name for name in ("docs", "code", "gone"))
    write_files(docs, {".gitignore": "*.log\n", "weir.md": "The weir is low.", "a.log": "First."})
    repository = create_repository(code, {"mill.md": "The mill stands."})
    write_files(gone, {"old.md": "The old lock."})
    options = {"collections": ("manuals",), "source": "manuals", "prefix": "docs/"}
    await deployment.sync(docs, ("*.log",), **options)
    await deployment.sync(code, worktree=True)
    assert (await deployment.refresh()).notes == []
    unchanged = await deployment.refresh()
    assert (unchanged.published, unchanged.token, len(unchanged.sources)) == (0, None, 2)

    repository.write({"mill.md": "The mill grinds."})
    write_files(docs, {"a.log": "Second sluice.", **{f"{n}.md": f"Gate {n}." for n in range(20)}})
    (docs / "weir.md").unlink()
    refresh = await deployment.refresh()
    assert (refresh.published, refresh.deleted, refresh.notes) == (22, 1, [])
    assert await deployment.find("sluice", refresh) == ["docs/a.log"]
    assert await deployment.find("grinds", refresh) == ["mill.md"]
    assert await deployment.find("weir", refresh) == []
    answer = await deployment.client.ask(PROJECT, "gate", mode="keyword", limit=50)
    assert len(answer.results) == 20, "every change is searchable, not only the last"

    await deployment.sync(gone)
    shutil.rmtree(gone)
    shutil.rmtree(code)
    create_repository(code, {"other.md": "Another repository."})
    refresh = await deployment.refresh()
    assert refresh.sources == ["manuals"]
    assert sorted(note.split(": ")[1].split(";")[0] for note in refresh.notes) == [
        f"{code} is another source now",
        f"{gone} doesn't exist",
    ]
    assert await deployment.find("grinds", refresh) == ["mill.md"]


async def test_overlays_in_other_directories_are_refreshed(
    deployment: Deployment, tmp_path: Path
) -> None:
    """Neither another directory nor a repository has the key of its base."""
    docs, edited, tracked = (tmp_path / name for name in ("docs", "edited", "tracked"))
    for folder in (docs, edited):
        write_files(folder, {"weir.md": "The weir is low."})
    repository = create_repository(tracked, {"weir.md": "The weir is low."})
    await deployment.sync(docs)
    await deployment.sync(edited, base=str(docs))
    await deployment.sync(tracked, base=str(docs))
    write_files(edited, {"weir.md": "The weir is edited."})
    repository.commit({"weir.md": "The weir is committed."})
    for overlay, word in ((edited, "edited"), (tracked, "committed")):
        refresh = await deployment.refresh(overlay=str(overlay))
        assert (refresh.notes, refresh.published) == ([], 1)
        answer = await deployment.client.ask(
            PROJECT, word, mode="keyword", min_event=refresh.token, overlay=str(overlay)
        )
        assert [result.content for result in answer.results] == [f"The weir is {word}."]


async def test_a_refresh_ends_in_time(
    deployment: Deployment,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slow source is named and left for later; the other sources are refreshed."""
    quick, slow = tmp_path / "quick", tmp_path / "slow"
    for path in (quick, slow):
        write_files(path, {f"{path.name}.md": "First."})
        await deployment.sync(path)
        write_files(path, {f"{path.name}.md": f"Second {path.name}."})
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    listed = DirectorySource.list

    def wait_for_the_other(self: DirectorySource, sizes: Any) -> Any:
        if self.location == str(slow):
            asyncio.run_coroutine_threadsafe(done.wait(), loop).result()
        return listed(self, sizes)

    monkeypatch.setattr(DirectorySource, "list", wait_for_the_other)
    seconds = ceil(patience(3))
    refresh = await deployment.refresh(timedelta(seconds=seconds))
    done.set()
    assert refresh.sources == [str(quick)]
    assert refresh.notes == [f"{slow}: the sync did not end within {seconds} s"]
    assert await deployment.find("second", refresh) == ["quick.md"]
    assert (await deployment.refresh()).published == 1, "the cancelled sync is completed"

    nothing = await deployment.refresh(timedelta())
    assert nothing.notes == ["the sources could not be read within 0 s"]
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    elsewhere = await deployment.refresh()
    assert elsewhere.notes == ["plant has no repository or directory that elsewhere has synced"]
    assert elsewhere.sources == []
    connection = await asyncpg.connect(database.owner_url)
    await connection.execute("UPDATE sources SET state = '{}' WHERE location = $1", str(slow))
    await connection.close()
    [note] = (await deployment.refresh()).notes
    assert note == f"{slow}: its options are unknown; run `headrace sync` once"
