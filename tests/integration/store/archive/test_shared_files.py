"""Files that the changes of several projects share: writing, reading, upkeep and faults."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pytest

from events.names import DocumentKey, LogPosition
from runtime.errors import Unavailable
from store.archive import shared_files
from store.archive.blocks import Decompressor, intact_blocks
from store.archive.damage import DamagedSegment
from store.archive.index import Index
from store.archive.repair import ArchiveRepair
from store.archive.shared_upkeep import SharedFiles
from store.postgres.locks import Lock
from store.postgres.pool import Database
from store.purge.projects import DeletedProjects, remove_project
from store.store import Store
from tests.support.archives import ArchiveAt, flip
from tests.support.changes import at, logged, moment, reference_to, sha256_of
from tests.support.databases import Database as FreshDatabase
from tests.support.waiting import eventually

AT_ONCE = timedelta(0)
WORD = "qvexilmorpatwug"
BOTH = {
    "alpha": [logged("a.md", 1, f"alpha {WORD}"), logged("b.md", 2, "alpha two")],
    "beta": [logged("a.md", 3, "beta one", project="beta")],
}


def _shared(kept: ArchiveAt) -> list[Path]:
    return sorted(kept.directory.glob("*/shared/*.zst"))


def _own(kept: ArchiveAt) -> list[Path]:
    return kept.files("events") + kept.files("contents")


def _all_bytes(kept: ArchiveAt) -> bytes:
    """The raw data of all files."""
    return b"".join(
        Decompressor().raw(
            data[block.start : block.start + block.size], block.raw_size, block.sha256
        )
        for path in kept.directory.rglob("*.zst")
        for data in [path.read_bytes()]
        for block in intact_blocks(data)
    )


async def _has_both(kept: ArchiveAt, *, projects: tuple[str, ...] = ("alpha", "beta")) -> None:
    """Check that every change and content of ``BOTH`` is archived once, and nothing is damaged."""
    for project in projects:
        expected = BOTH[project]
        archived = await kept.changes(project=project)
        assert [change.log_position for change in archived] == [
            change.log_position for change in expected
        ]
        texts = [change.event.data.content or "" for change in expected]
        contents = await kept.archive.contents(project, [sha256_of(text) for text in texts])
        assert sorted(contents.values()) == sorted(text.encode() for text in texts)
        check = await kept.archive.check(project, grace=AT_ONCE)
        assert check.is_sound, check


async def _id(kept: ArchiveAt, project: str) -> int:
    archived = await kept.projects.find(project)
    assert archived is not None
    return archived


async def test_projects_share_one_file(kept: ArchiveAt) -> None:
    """Changes of two projects are in one file, and each project reads its own."""
    assert await kept.archive.append_together(BOTH) == {}
    assert len(_shared(kept)) == 1
    assert _own(kept) == []
    await _has_both(kept)
    statistics = await kept.archive.statistics("alpha")
    assert statistics is not None
    assert (statistics.events, statistics.contents) == (2, 2)
    at_two = [
        change.position async for change in kept.archive.events_at("alpha", np.array([at(2)]))
    ]
    assert at_two == [at(2)]


async def test_one_project_has_files_of_its_own(kept: ArchiveAt) -> None:
    """A batch with changes of one project only is in files of the project."""
    assert await kept.archive.append_together({"alpha": BOTH["alpha"], "beta": []}) == {}
    assert _shared(kept) == []
    await _has_both(kept, projects=("alpha",))


async def test_archiving_again_adds_nothing_to_read(kept: ArchiveAt) -> None:
    """Changes that are archived twice are read once, and their contents are stored once."""
    await kept.archive.append_together(BOTH)
    await kept.archive.append_together(BOTH)
    assert len(_shared(kept)) == 2
    await _has_both(kept)
    statistics = await kept.archive.statistics("alpha")
    assert statistics is not None
    assert statistics.contents == 2


async def test_many_projects_have_some_files(
    kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file has at most so many projects as Postgres has room for their locks."""
    monkeypatch.setattr(shared_files, "_MOST_PROJECTS", 2)
    names = [f"p{number}" for number in range(5)]
    changes = {name: [logged("a.md", 1, name, project=name)] for name in names}
    assert await kept.archive.append_together(changes) == {}
    assert len(_shared(kept)) == 2
    for name in names:
        assert len(await kept.changes(project=name)) == 1


async def test_the_outbox_lets_archived_events_go(kept: ArchiveAt, worker: Database) -> None:
    """The events of a shared file leave the outbox, those of others stay."""
    await kept.projects.ensure_all(BOTH)
    insert = (
        "insert into outbox (project_id, event_id, lane, partition, event) "
        "values ($1, $2, 'live', 0, '')"
    )
    for project, event_id in (("alpha", "a.md@1:0"), ("beta", "a.md@3:0"), ("beta", "other")):
        project_id = await _id(kept, project)
        async with worker.scope(project_id) as connection:
            await connection.execute(insert, project_id, event_id)
    await kept.archive.append_together(BOTH)
    left = []
    for project in BOTH:
        async with worker.scope(await _id(kept, project)) as connection:
            left += [row[0] for row in await connection.fetch("select event_id from outbox")]
    assert left == ["other"]


async def test_content_outside_of_events_gets_files_of_its_project(
    kept: ArchiveAt, store: Store
) -> None:
    """A project whose change refers to stored content is archived alone."""
    await store.put("beta", "large")
    change = logged("l.md", 4, content_ref=reference_to("large"), project="beta")
    assert await kept.archive.append_together({**BOTH, "beta": [change]}) == {}
    assert _shared(kept) == []
    assert await kept.archive.content("beta", sha256_of("large")) == b"large"
    await _has_both(kept, projects=("alpha",))


async def test_a_content_that_was_dropped_in_between_is_archived_again(
    kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a content was dropped after it was looked up, its project is archived alone."""
    look_up = Index.archived_of_projects

    async def outdated(index: Index, hashes: Any) -> dict[int, set[str]]:
        archived = await look_up(index, hashes)
        return {**archived, await _id(kept, "beta"): {sha256_of("beta one")}}

    monkeypatch.setattr(Index, "archived_of_projects", outdated)
    assert await kept.archive.append_together(BOTH) == {}
    assert len(_shared(kept)) == 1
    assert len(_own(kept)) == 2
    await _has_both(kept)


@pytest.mark.parametrize("fault", ["_append", "append"])
async def test_if_a_shared_file_fails_each_project_is_archived_alone(
    kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A failure before or in the shared part of the work delays no project."""

    async def fail(*_: Any) -> None:
        raise Unavailable("no space is left")

    monkeypatch.setattr(shared_files.SharedAppender, fault, fail)
    assert await kept.archive.append_together(BOTH) == {}
    assert _shared(kept) == []
    await _has_both(kept)


async def test_a_locked_row_of_a_project_delays_no_other(kept: ArchiveAt, worker: Database) -> None:
    """While a project's rows are locked, the others are archived, and no orphan is left."""
    await kept.projects.ensure_all(BOTH)
    async with worker.scope(await _id(kept, "alpha")) as connection:
        await Lock.ARCHIVED_CONTENTS.acquire(connection, await _id(kept, "alpha"))
        archiving = asyncio.create_task(kept.archive.append_together(BOTH))
        await eventually(lambda: _is_archived(kept, "beta"), "beta is archived")
        assert not archiving.done()
    assert await archiving == {}
    assert _shared(kept) == []
    await _has_both(kept)


async def _is_archived(kept: ArchiveAt, project: str) -> bool:
    return bool(await kept.changes(project=project))


async def test_compaction_gives_each_project_its_own_files(kept: ArchiveAt) -> None:
    """Compaction copies the parts; the shared file goes once the entries of all have gone."""
    await kept.archive.append_together(BOTH)
    for project in ("alpha", "beta"):
        await kept.archive.compact(project, moment(0), grace=AT_ONCE)
    await _has_both(kept)
    assert len(_own(kept)) == 4
    await kept.archive.compact("alpha", moment(0), grace=AT_ONCE)
    await kept.archive.tidy_shared(grace=AT_ONCE)
    assert len(_shared(kept)) == 1, "beta's entries are left"
    await kept.archive.compact("beta", moment(0), grace=AT_ONCE)
    await kept.archive.tidy_shared(grace=AT_ONCE)
    assert _shared(kept) == []
    await _has_both(kept)
    assert len(_own(kept)) == 4


async def test_a_file_stays_as_long_as_a_retired_part_may_be_read(kept: ArchiveAt) -> None:
    """During the grace time a shared file is not removed, although no new reader needs it."""
    await kept.archive.append_together(BOTH)
    for _ in range(2):
        for project in ("alpha", "beta"):
            await kept.archive.compact(project, moment(0))
    await kept.archive.tidy_shared()
    assert len(_shared(kept)) == 1


async def test_a_purge_takes_the_text_out_of_the_shared_file(kept: ArchiveAt) -> None:
    """The purged text is in no file any more, and the other project loses nothing."""
    await kept.archive.append_together(BOTH)
    assert WORD.encode() in _all_bytes(kept)
    project_id = await _id(kept, "alpha")
    before = {DocumentKey("", "a.md"): LogPosition(at(9), 0)}
    done = await kept.archive.purge("alpha", project_id, before)
    assert done is not None
    assert (done.changes, done.contents, done.young) == (1, 1, 0)
    assert WORD.encode() not in _all_bytes(kept)
    await _has_both(kept, projects=("beta",))
    assert [change.event.data.change for change in await kept.changes()] == ["delete", "upsert"]
    check = await kept.archive.check("alpha", grace=AT_ONCE)
    assert check.is_sound, check
    await kept.archive.tidy_shared(grace=AT_ONCE)
    await _has_both(kept, projects=("beta",))


async def test_a_reader_continues_in_the_file_that_a_purge_wrote(
    kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of another project that has the old path finds its part in the new file."""
    await kept.archive.append_together(BOTH)
    project_id = await _id(kept, "alpha")
    other = kept.as_of(kept.projects._database)
    segments = await Index(kept.projects._database).segments(await _id(kept, "beta"))
    before = {DocumentKey("", "a.md"): LogPosition(at(9), 0)}
    assert await other.archive.purge("alpha", project_id, before) is not None
    with monkeypatch.context() as patch:
        listed = iter([segments])
        current = Index.segments

        async def outdated(index: Index, project_id: int, after: int = -1) -> Any:
            return next(listed, None) or await current(index, project_id, after)

        patch.setattr(Index, "segments", outdated)
        archived = await kept.changes(project="beta")
    assert [change.log_position for change in archived] == [BOTH["beta"][0].log_position]


async def test_a_purge_that_was_killed_can_be_repeated(
    kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the shared file is replaced, a purge leaves all readable, and then ends."""
    await kept.archive.append_together(BOTH)
    project_id = await _id(kept, "alpha")
    before = {DocumentKey("", "a.md"): LogPosition(at(9), 0)}

    async def die(*_: Any) -> None:
        raise KeyboardInterrupt

    for step in ("_move", "_remove"):
        with monkeypatch.context() as patch:
            patch.setattr(SharedFiles, step, die)
            with pytest.raises(KeyboardInterrupt):
                await kept.archive.purge("alpha", project_id, before)
        await _has_both(kept, projects=("beta",))
    await kept.archive.purge("alpha", project_id, before)
    assert WORD.encode() not in _all_bytes(kept)
    await kept.archive.tidy_shared(grace=AT_ONCE)
    await _has_both(kept, projects=("beta",))
    assert len(_shared(kept)) == 1


async def test_a_deleted_project_takes_its_parts_along(
    kept: ArchiveAt, worker: Database, database: FreshDatabase
) -> None:
    """After a project is removed, no file has its text, and the other project loses nothing."""
    await kept.archive.append_together(BOTH)
    project_id = await _id(kept, "alpha")
    await DeletedProjects(worker).retire(project_id)
    await remove_project(worker, kept.archive, project_id)
    assert WORD.encode() not in _all_bytes(kept)
    await _has_both(kept, projects=("beta",))


async def test_a_purge_finds_text_that_the_index_does_not_name(
    kept: ArchiveAt, worker: Database
) -> None:
    """A file that a deleted project keeps still has the text of a compacted one, until a purge."""
    changes = {
        "alpha": [logged("a.md", 1, "alpha one")],
        "beta": [logged("a.md", 3, f"beta {WORD}", project="beta")],
    }
    await kept.archive.append_together(changes)
    await DeletedProjects(worker).retire(await _id(kept, "alpha"))
    for _ in range(2):
        await kept.archive.compact("beta", moment(0), grace=AT_ONCE)
    await kept.archive.tidy_shared(grace=AT_ONCE)
    assert len(_shared(kept)) == 1
    before = {DocumentKey("", "a.md"): LogPosition(at(9), 0)}
    assert await kept.archive.purge("beta", await _id(kept, "beta"), before) is not None
    assert WORD.encode() not in _all_bytes(kept)
    assert b"alpha one" in _all_bytes(kept)


async def test_two_purges_at_once_leave_no_text(kept: ArchiveAt, worker: Database) -> None:
    """Purges of three projects of a file, one of them deleted, leave no text of any."""
    changes = {
        name: [logged("a.md", 1, f"{name} {WORD}", project=name)]
        for name in ("alpha", "beta", "gamma")
    }
    await kept.archive.append_together(changes)
    before = {DocumentKey("", "a.md"): LogPosition(at(9), 0)}
    gamma = await _id(kept, "gamma")
    await DeletedProjects(worker).retire(gamma)
    await asyncio.gather(
        kept.archive.purge("alpha", await _id(kept, "alpha"), before),
        kept.archive.purge("beta", await _id(kept, "beta"), before),
        remove_project(worker, kept.as_of(worker).archive, gamma),
    )
    assert WORD.encode() not in _all_bytes(kept)
    for name in ("alpha", "beta"):
        assert len(await kept.changes(project=name)) == 1
        assert (await kept.archive.check(name, grace=AT_ONCE)).is_sound


async def test_deleted_projects_of_an_orphan_take_it_along(
    kept: ArchiveAt, worker: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An orphan whose projects are all deleted, and have no other rows, is removed with them."""
    await kept.archive.append_together(BOTH)
    await _lose_index(kept, worker)
    monkeypatch.setattr("store.archive.shared_upkeep._ENTRY_S", 0.0)
    monkeypatch.setattr("store.archive.archive.GRACE", AT_ONCE)
    ids = [await _id(kept, project) for project in BOTH]
    for project_id in ids:
        await DeletedProjects(worker).retire(project_id)
        async for _ in DeletedProjects(worker).drop_rows(project_id):
            pass
    for project_id in ids:
        await remove_project(worker, kept.archive, project_id)
    assert _shared(kept) == []


async def test_a_damaged_file_that_no_project_needs_is_removed(
    kept: ArchiveAt, worker: Database
) -> None:
    """A damaged list of parts does not keep a deleted project, once the others have left."""
    await kept.archive.append_together(BOTH)
    for _ in range(2):
        await kept.archive.compact("beta", moment(0), grace=AT_ONCE)
    flip(_shared(kept)[0], -5)
    project_id = await _id(kept, "alpha")
    await DeletedProjects(worker).retire(project_id)
    await remove_project(worker, kept.archive, project_id)
    assert _shared(kept) == []
    await _has_both(kept, projects=("beta",))


@pytest.mark.parametrize("age", ["old", "young"])
async def test_a_deleted_project_takes_orphans_along(
    kept: ArchiveAt, worker: Database, monkeypatch: pytest.MonkeyPatch, age: str
) -> None:
    """An orphan is entered for the other project; a young one ends the deletion with an error."""
    await kept.archive.append_together(BOTH)
    await _lose_index(kept, worker)
    project_id = await _id(kept, "alpha")
    await DeletedProjects(worker).retire(project_id)
    monkeypatch.setattr("store.archive.shared_upkeep._ENTRY_S", 0.0)
    if age == "young":
        with pytest.raises(Unavailable, match="try again in an hour"):
            await kept.archive.drop(project_id)
    monkeypatch.setattr("store.archive.archive.GRACE", AT_ONCE)
    await remove_project(worker, kept.archive, project_id)
    assert WORD.encode() not in _all_bytes(kept)
    await _has_both(kept, projects=("beta",))


async def test_a_damaged_file_is_not_replaced(kept: ArchiveAt) -> None:
    """A purge leaves a file with a damaged part as it is, so that a copy of it can be restored."""
    await kept.archive.append_together(BOTH)
    path = _shared(kept)[0]
    last_block = path.read_bytes().rindex(b"HRA1")
    flip(path, last_block - 20)
    damaged = path.read_bytes()
    before = {DocumentKey("", "other.md"): LogPosition(at(9), 0)}
    done = await kept.archive.purge("alpha", await _id(kept, "alpha"), before)
    assert done is not None
    assert [error.path.partition("#")[0] for error in done.damaged] == [str(path)]
    assert path.read_bytes() == damaged


async def test_a_file_with_parts_of_unknown_projects_is_kept(
    kept: ArchiveAt, worker: Database
) -> None:
    """If a restored database lacks a project, the file with its only changes is never removed."""
    await kept.archive.append_together(BOTH)
    data = _shared(kept)[0].read_bytes()
    await DeletedProjects(worker).retire(await _id(kept, "alpha"))
    await remove_project(worker, kept.archive, 1)
    _shared(kept)[0].unlink()
    await _lose_index(kept, worker)
    restored = kept.directory / (await Index(worker).shared_folder()) / "restored.zst"
    restored.write_bytes(data)
    for _ in range(3):
        await kept.archive.tidy_shared(grace=AT_ONCE)
        await kept.archive.compact("beta", moment(0), grace=AT_ONCE)
    await kept.archive.tidy_shared(grace=AT_ONCE)
    assert restored.read_bytes() == data
    await _has_both(kept, projects=("beta",))
    before = {DocumentKey("", "a.md"): LogPosition(at(9), 0)}
    assert await kept.archive.purge("beta", await _id(kept, "beta"), before) is not None
    assert WORD.encode() in _all_bytes(kept)
    assert b"beta one" not in _all_bytes(kept)


async def test_the_last_project_of_a_file_takes_it_along(kept: ArchiveAt, worker: Database) -> None:
    """When all its projects are removed, a shared file is removed too."""
    await kept.archive.append_together(BOTH)
    for project in BOTH:
        project_id = await _id(kept, project)
        await DeletedProjects(worker).retire(project_id)
        await remove_project(worker, kept.archive, project_id)
    assert _shared(kept) == []
    async with worker.connection() as connection:
        assert await connection.fetchval("select count(*) from archive_shared_files") == 0


async def test_orphans_are_entered(kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was written before a crash is reported, and entered once it is old enough."""

    async def die(*_: Any) -> set[int]:
        raise KeyboardInterrupt

    await kept.projects.ensure_all(BOTH)
    with monkeypatch.context() as patch:
        patch.setattr(Index, "enter_shared", die)
        with pytest.raises(KeyboardInterrupt):
            await kept.archive.append_together(BOTH)
    assert len(_shared(kept)) == 1
    assert await kept.changes() == []
    for project in BOTH:
        assert len((await kept.archive.check(project, grace=AT_ONCE)).orphans) == 1
    assert (await kept.archive.check("alpha")).is_sound, "it may be about to be entered"
    await kept.archive.tidy_shared()
    assert await kept.changes() == []
    await kept.archive.tidy_shared(grace=AT_ONCE)
    await _has_both(kept)


async def test_a_repair_enters_orphans(
    kept: ArchiveAt, worker: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repair of a project enters shared files that are not in the index."""
    await kept.archive.append_together(BOTH)
    await _lose_index(kept, worker)
    monkeypatch.setattr("store.archive.repair.GRACE", AT_ONCE)
    project_id = await _id(kept, "alpha")
    await ArchiveRepair(worker, str(kept.directory), "alpha", project_id).orphans()
    await _has_both(kept)


async def _lose_index(kept: ArchiveAt, worker: Database) -> None:
    """Restore the index to a time before the archive's files."""
    for project_id in (await kept.projects.all()).values():
        async with worker.scope(project_id) as connection:
            await connection.execute("delete from archive_contents")
            await connection.execute("delete from archive_segments")
    async with worker.connection() as connection:
        await connection.execute("delete from archive_shared_files")


async def test_a_restored_database_finds_its_files_again(kept: ArchiveAt, worker: Database) -> None:
    """If Postgres was restored from a backup, later shared files are entered again, once."""
    await kept.archive.append_together(BOTH)
    await _lose_index(kept, worker)
    for _ in range(2):
        await kept.archive.tidy_shared(grace=AT_ONCE)
        await _has_both(kept)


async def test_an_orphan_of_unknown_projects_is_not_touched(
    kept: ArchiveAt, worker: Database
) -> None:
    """A file whose projects do not exist any more is neither entered nor removed."""
    others = {name: [logged("a.md", 1, name, project=name)] for name in ("gamma", "delta")}
    await kept.archive.append_together(others)
    path = _shared(kept)[0]
    data = path.read_bytes()
    for name in others:
        project_id = await _id(kept, name)
        await DeletedProjects(worker).retire(project_id)
        await remove_project(worker, kept.archive, project_id)
    path.write_bytes(data)
    await kept.archive.tidy_shared(grace=AT_ONCE)
    assert path.read_bytes() == data


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "unfinished"])
async def test_a_damaged_orphan_is_removed(kept: ArchiveAt, worker: Database, damage: str) -> None:
    """An orphan that was not written completely, or whose list of parts is damaged, is removed."""
    await kept.archive.append_together(BOTH)
    await _lose_index(kept, worker)
    path = _shared(kept)[0]
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    elif damage == "flipped":
        flip(path, -5)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        path.rename(path.with_name(f".{path.name}.unfinished"))
    assert len((await kept.archive.check("alpha", grace=AT_ONCE)).orphans) == 1
    await kept.archive.tidy_shared(grace=AT_ONCE)
    assert list(path.parent.iterdir()) == []


async def test_damage_concerns_the_project_of_the_part(kept: ArchiveAt) -> None:
    """A flipped bit in a part is reported for its project only, with the path of the part."""
    await kept.archive.append_together(BOTH)
    flip(_shared(kept)[0], 60)
    check = await kept.archive.check("alpha", grace=AT_ONCE)
    assert [error.path.partition("#")[0] for error in check.damaged] == [str(_shared(kept)[0])]
    await _has_both(kept, projects=("beta",))


async def test_a_missing_file_is_reported_for_each_project(kept: ArchiveAt) -> None:
    """If a shared file is gone, each project misses its parts, and a purge does not fail."""
    await kept.archive.append_together(BOTH)
    _shared(kept)[0].unlink()
    for project in BOTH:
        assert len((await kept.archive.check(project, grace=AT_ONCE)).missing) == 2
        with pytest.raises(DamagedSegment, match="missing"):
            await kept.changes(project=project)
    damaged: list[DamagedSegment] = []
    await kept.archive.contents("beta", [sha256_of("beta one")], damaged=damaged.append)
    assert len(damaged) == 1
    done = await kept.archive.compact("beta", moment(0), grace=AT_ONCE)
    assert len(done.damaged) == 2
    before = {DocumentKey("", "a.md"): LogPosition(at(9), 0)}
    purged = await kept.archive.purge("beta", await _id(kept, "beta"), before)
    assert purged is not None
    assert purged.damaged


async def test_a_copy_of_the_database_leaves_the_files_of_its_original(
    kept: ArchiveAt, worker: Database, database: FreshDatabase
) -> None:
    """A purge in a copy with a new id does not change shared files of the original."""
    await kept.archive.append_together(BOTH)
    original = _shared(kept)[0].read_bytes()
    connection = await asyncpg.connect(database.owner_url)
    try:
        await connection.execute("update deployment set id = md5('copy')")
    finally:
        await connection.close()
    copy = kept.as_of(worker)
    project_id = await _id(kept, "alpha")
    before = {DocumentKey("", "a.md"): LogPosition(at(9), 0)}
    assert await copy.archive.purge("alpha", project_id, before) is not None
    for project in BOTH:
        for _ in range(2):
            await copy.archive.compact(project, moment(0), grace=AT_ONCE)
    await copy.archive.tidy_shared(grace=AT_ONCE)
    assert _shared(kept)[0].read_bytes() == original
    await _has_both(copy, projects=("beta",))


async def test_a_replay_reads_changes_in_order(kept: ArchiveAt) -> None:
    """Batches of several projects are read in order of their positions."""
    for second in range(5):
        changes = {
            name: [logged("a.md", second, f"{name} {second}", project=name)]
            for name in ("alpha", "beta")
        }
        assert await kept.archive.append_together(changes) == {}
    assert await kept.positions() == [at(second) for second in range(5)]
    assert len(_shared(kept)) == 5
