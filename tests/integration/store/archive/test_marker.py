"""Archives of several deployments at one location: each uses only its own files."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from runtime.embedded import EmbeddedPostgres
from store.archive import Archive
from store.postgres.pool import Database
from tests.support.archives import ArchiveAt
from tests.support.changes import at, logged, sha256_of
from tests.support.databases import fresh_database
from tests.support.writes import opened

NOW = datetime.now(UTC) + timedelta(hours=1)
AT_ONCE = timedelta(0)


@pytest.fixture
async def theirs(postgres_server: EmbeddedPostgres, tmp_path: Path) -> AsyncIterator[ArchiveAt]:
    """Archive of another deployment at the same location, with the same project number."""
    async with fresh_database(postgres_server) as fresh, opened(fresh.worker_url) as worker:
        yield ArchiveAt.of(worker, tmp_path / "archive")


async def folder_of(kept: ArchiveAt, project: str) -> Path:
    project_id = await kept.projects.ensure(project)
    return kept.directory / await kept.archive._index.folder(project_id)


async def test_nothing_of_another_deployment_is_taken_in(
    archive: Archive, kept: ArchiveAt, theirs: ArchiveAt
) -> None:
    """Files of another deployment are neither read, adopted nor removed."""
    await archive.append("killr", [logged("a", 1, "a", project="killr")])
    secret = logged("secret.md", 2, "The staging secret is aardvark-42.", project="victim")
    await theirs.archive.append("victim", [secret])
    for _ in range(2):
        await archive.compact("killr", NOW, grace=AT_ONCE)
    assert [one.event.data.uri for one in await kept.changes(project="killr")] == ["a"]
    assert await archive.content("killr", sha256_of("The staging secret is aardvark-42.")) is None
    assert (await archive.check("killr", grace=AT_ONCE)).is_sound
    assert [one.log_position for one in await theirs.changes(project="victim")] == [
        secret.log_position
    ]
    assert (await theirs.archive.check("victim", grace=AT_ONCE)).is_sound


async def test_a_file_of_another_project_is_no_orphan_to_take_in(
    archive: Archive, kept: ArchiveAt, theirs: ArchiveAt
) -> None:
    """A file of another project is not adopted, even in the project's own folder."""
    await archive.append("killr", [logged("a", 1, "a", project="killr")])
    await theirs.archive.append("victim", [logged("b", 2, "b", project="victim")])
    (foreign,) = (await folder_of(theirs, "victim")).glob("events/*.zst")
    put = (await folder_of(kept, "killr")) / "events" / foreign.name
    shutil.copy2(foreign, put)
    await archive.compact("killr", NOW, grace=AT_ONCE)
    assert [one.event.data.uri for one in await kept.changes(project="killr")] == ["a"]
    assert put.exists()


async def test_what_an_earlier_version_took_in_is_given_back(
    archive: Archive, kept: ArchiveAt, theirs: ArchiveAt, worker: Database
) -> None:
    """A foreign file in the index is neither read nor merged nor removed."""
    await archive.append("killr", [logged("a", 1, "a", project="killr")])
    await archive.append("killr", [logged("b", 3, "b", project="victim")])
    await archive.append(
        "killr", [logged("c", 4, "c", project="killr"), logged("d", 5, "d", project="victim")]
    )
    foreign = kept.files("events")[1]
    assert [one.event.data.uri for one in await kept.changes(project="killr")] == ["a", "c"]
    for _ in range(2):
        await archive.compact("killr", datetime(2020, 1, 1, tzinfo=UTC), grace=timedelta(days=1))
    assert foreign.exists()
    project_id = await kept.projects.ensure("killr")
    (merged,) = await archive._index.segments(project_id)
    assert merged.entries == 2


async def test_an_archive_of_an_earlier_version_is_read_and_taken_over(
    archive: Archive, kept: ArchiveAt, worker: Database
) -> None:
    """An archive of an earlier version, without ids in its paths, is read and migrated."""
    await archive.append("alpha", [logged("a", 1, "one"), logged("a", 2, "two")])
    await archive.append("alpha", [logged("b", 3, "three")])
    project_id = await kept.projects.ensure("alpha")
    folder = await folder_of(kept, "alpha")
    folder.rename(kept.directory / str(project_id))
    async with worker.scope(project_id) as connection:
        await connection.execute(
            "update archive_segments set path = regexp_replace(path, '^[0-9a-f]{32}/', '')"
        )
    assert await kept.positions() == [at(1), at(2), at(3)]
    await archive.compact("alpha", NOW)
    await archive.compact("alpha", NOW, grace=AT_ONCE)
    assert await kept.positions() == [at(2), at(3)]
    assert await archive.content("alpha", sha256_of("two")) == b"two"
    assert {path.parents[1] for path in kept.directory.glob("**/*.zst")} == {folder}
    assert (await archive.check("alpha", grace=AT_ONCE)).is_sound


async def test_a_copy_removes_nothing_of_the_original(
    archive: Archive, kept: ArchiveAt, worker: Database
) -> None:
    """A copy of a database reads the original's files, writes its own and removes none."""
    await archive.append("alpha", [logged("a", 1, "one"), logged("a", 2, "two")])
    original = set(kept.directory.glob("**/*.zst"))
    async with worker.connection() as connection:
        await connection.execute("update deployment set id = repeat('a', 32)")
    copy = ArchiveAt.of(worker, kept.directory)
    await copy.archive.compact("alpha", NOW)
    await copy.archive.compact("alpha", NOW, grace=AT_ONCE)
    assert await copy.positions() == [at(2)]
    assert original <= set(kept.directory.glob("**/*.zst"))
