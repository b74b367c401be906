"""Compaction of the archive, also beside readers and writers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from events.names import LogPosition
from events.streams.changes import LoggedChange
from runtime.errors import Unavailable
from store.archive import Archive
from store.archive.compaction import event_merge
from store.archive.compaction.content_merge import ContentMerging
from store.archive.compaction.replacement import Replacing
from store.archive.files import Files
from store.archive.writer import Writing
from store.documents import ledger
from store.postgres.pool import Database
from store.store import Store
from tests.support.archives import ArchiveAt, flip
from tests.support.changes import at, logged, moment, sha256_of
from tests.support.writes import document_write

NOW = datetime.now(UTC) + timedelta(hours=1)
AT_ONCE = timedelta(0)


async def test_beyond_the_retention_only_the_last_of_each_document_stays(
    archive: Archive, kept: ArchiveAt
) -> None:
    """Beyond the retention only the last change of each document stays, deletes included."""
    await archive.append("alpha", [logged("a", 1, "a1"), logged("a", 2, "a2")])
    await archive.append("alpha", [logged("a", 3, "a3", agent="ann"), logged("b", 4, "b1")])
    await archive.append("alpha", [logged("b", 5), logged("c", 6, "c1"), logged("c", 7, "c2")])
    before = await archive.statistics("alpha")
    done = await archive.compact("alpha", moment(6))
    assert done.dropped_events == 2
    assert await kept.positions() == [at(2), at(3), at(5), at(6), at(7)]
    after = await archive.statistics("alpha")
    assert before is not None
    assert after is not None
    assert after.freed_bytes == done.freed_bytes == before.stored_bytes - after.stored_bytes > 0
    assert (after.dropped_events, after.complete_from) == (2, at(4) + 1)
    assert after.beginning is not None
    assert after.beginning.position == at(4) + 1


async def test_a_rename_is_the_last_of_both_its_documents(
    archive: Archive, kept: ArchiveAt
) -> None:
    """A rename is kept as the delete of its old document."""
    await archive.append(
        "alpha",
        [
            logged("a", 1, "a"),
            logged("b", 2, "a", change="rename", old_uri="a"),
            logged("b", 3, "b"),
        ],
    )
    await archive.compact("alpha", NOW)
    assert await kept.positions() == [at(2), at(3)]


async def test_what_was_rejected_is_never_a_last(
    archive: Archive, kept: ArchiveAt, worker: Database
) -> None:
    """A rejected change is removed, and the one before it is kept."""
    await archive.append("alpha", [logged("a", 1, "a1"), logged("a", 2, "a2")])
    project_id = await kept.projects.ensure("alpha")
    async with worker.scope(project_id) as connection:
        entry = ledger.Entry(LogPosition(at(2), 0), "a@2:0", "rejected")
        await ledger.record(connection, project_id, [entry])
    await archive.compact("alpha", NOW)
    assert await kept.positions() == [at(1)]


async def test_what_was_rejected_but_stands_stays(
    archive: Archive, kept: ArchiveAt, worker: Database, store: Store
) -> None:
    """A rejected change that a replay has indexed is kept."""
    await archive.append("alpha", [logged("a", 1, "a1"), logged("a", 2, "a2")])
    await store.apply([document_write("a", at(2), ["a2"])])
    project_id = await kept.projects.ensure("alpha")
    async with worker.scope(project_id) as connection:
        await connection.execute("update ledger set outcome = 'rejected'")
    await archive.compact("alpha", NOW)
    assert await kept.positions() == [at(2)]


async def test_contents_go_with_the_last_change_that_refers_to_them(archive: Archive) -> None:
    """Contents are removed with the last change that refers to them, after the retention."""
    await archive.append("alpha", [logged("a", 1, "one"), logged("b", 2, "shared")])
    await archive.append("alpha", [logged("a", 3, "two"), logged("b", 4, "three")])
    await archive.append("alpha", [logged("c", 5, "shared")])
    texts = ["one", "two", "three", "shared"]
    wanted = [sha256_of(text) for text in texts]
    assert (await archive.compact("alpha", moment(100))).dropped_contents == 0
    assert len(await archive.contents("alpha", wanted)) == 4
    assert (await archive.compact("alpha", NOW)).dropped_contents == 1
    found = await archive.contents("alpha", wanted)
    assert sorted(found.values()) == [b"shared", b"three", b"two"]
    appended = await archive.append("alpha", [logged("a", 6, "one")])
    assert appended.contents == 1
    assert await archive.content("alpha", sha256_of("one")) == b"one"


async def test_of_young_contents_no_references_are_kept_in_mind(
    archive: Archive, kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References to contents within the retention are not collected in memory."""
    runs: list[ContentMerging] = []
    run = ContentMerging.run

    async def watched(self: ContentMerging) -> None:
        runs.append(self)
        await run(self)

    monkeypatch.setattr(ContentMerging, "run", watched)
    await archive.append("alpha", [logged("a", number, f"a{number}") for number in range(1, 9)])
    await archive.compact("alpha", datetime.now(UTC) - timedelta(days=1))
    assert not runs[0]._referred
    await archive.compact("alpha", NOW)
    assert runs[1]._referred == {bytes.fromhex(sha256_of("a8"))}


@pytest.fixture
def read_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the files that are read from now on; no file is small enough to be merged."""
    paths: list[str] = []
    read = Files.read

    def watched(self: Files, path: str) -> bytes:
        paths.append(path)
        return read(self, path)

    monkeypatch.setattr(Files, "read", watched)
    monkeypatch.setattr(event_merge, "_SMALL_BYTES", 0)
    return paths


async def test_old_changes_are_read_again_when_others_became_old(
    archive: Archive, kept: ArchiveAt, read_files: list[str]
) -> None:
    """Compaction reads no file if nothing can be dropped, and no file of young changes only."""
    await archive.append("alpha", [logged("a", 1), logged("a", 2)])
    assert (await archive.compact("alpha", moment(5))).dropped_events == 1
    await archive.append("alpha", [logged("a", 6)])
    await archive.compact("alpha", moment(5))
    read_files.clear()
    await archive.compact("alpha", moment(5))
    assert read_files == []
    assert (await archive.compact("alpha", moment(7))).dropped_events == 1
    assert await kept.positions() == [at(6)]


async def test_old_changes_that_came_late_are_read(
    archive: Archive, kept: ArchiveAt, read_files: list[str]
) -> None:
    """A file that is adopted may have old changes, although none became old since."""
    await archive.append("alpha", [logged("a", 3)])
    await archive.compact("alpha", moment(5))
    read_files.clear()
    await archive.append("alpha", [logged("a", 1), logged("b", 2)])
    assert (await archive.compact("alpha", moment(5))).dropped_events == 1
    assert sorted(await kept.positions()) == [at(2), at(3)]


async def test_a_damaged_file_is_read_again_after_its_repair(
    archive: Archive, kept: ArchiveAt
) -> None:
    """A compaction that could not read a file does not count as the last one."""
    await archive.append("alpha", [logged("a", 1, "a1"), logged("a", 2)])
    (path,) = kept.files("events")
    flip(path, -10)
    assert (await archive.compact("alpha", NOW)).dropped_events == 0
    flip(path, -10)
    assert (await archive.compact("alpha", NOW)).dropped_events == 1


async def test_small_files_become_one_and_old_ones_are_removed_later(
    archive: Archive, kept: ArchiveAt
) -> None:
    """Small files are merged, repeated changes kept once, and the old files removed later."""
    for seconds in range(10):
        batch = [logged(f"f{n}", n, f"text {n}") for n in range(seconds, seconds + 2)]
        await archive.append("alpha", batch)
    await archive.compact("alpha", moment(0))
    statistics = await archive.statistics("alpha")
    assert statistics is not None
    assert (statistics.files, statistics.events, statistics.contents) == (2, 11, 11)
    assert await kept.positions() == [at(n) for n in range(11)]
    assert (len(kept.files("events")), len(kept.files("contents"))) == (11, 11)
    again = await archive.compact("alpha", moment(0), grace=AT_ONCE)
    assert (again.removed_files, again.freed_bytes) == (20, 0)
    assert (len(kept.files("events")), len(kept.files("contents"))) == (1, 1)
    assert len(await archive.contents("alpha", [sha256_of("text 3"), sha256_of("text 9")])) == 2
    assert (await archive.check("alpha", grace=AT_ONCE)).is_sound


async def test_a_reader_goes_on_while_its_files_are_replaced(
    archive: Archive, kept: ArchiveAt
) -> None:
    """A reader that takes longer than the grace reads every change."""
    for seconds in range(5):
        await archive.append("alpha", [logged(f"f{seconds}", seconds, "text")])
    reader = archive.events("alpha")
    found = {(await anext(reader)).position}
    await archive.compact("alpha", moment(0))
    await archive.compact("alpha", moment(0), grace=AT_ONCE)
    assert len(kept.files("events")) == 1
    found |= {change.position async for change in reader}
    assert found == {at(seconds) for seconds in range(5)}


async def test_content_that_goes_during_an_append_is_archived_again(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content that compaction removes during an append is archived again."""
    await archive.append("alpha", [logged("a", 1, "text"), logged("a", 2)])
    write = Writing.events

    async def compact_first(self: Writing, changes: Sequence[LoggedChange]) -> None:
        monkeypatch.undo()
        assert (await archive.compact("alpha", NOW)).dropped_contents == 1
        await write(self, changes)

    monkeypatch.setattr(Writing, "events", compact_first)
    appended = await archive.append("alpha", [logged("b", 3, "text")])
    assert (appended.events, appended.contents) == (1, 1)
    assert await archive.content("alpha", sha256_of("text")) == b"text"
    assert (await archive.check("alpha", grace=AT_ONCE)).is_sound


async def test_content_that_is_needed_again_during_compaction_stays(
    archive: Archive, kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compaction checks for new references before it removes content."""
    await archive.append("alpha", [logged("a", 1, "text"), logged("a", 2)])
    exchange = Replacing.contents

    async def append_first(self: Replacing, *arguments: Any) -> int:
        monkeypatch.undo()
        assert (await archive.append("alpha", [logged("b", 3, "text")])).contents == 0
        return await exchange(self, *arguments)

    monkeypatch.setattr(Replacing, "contents", append_first)
    assert (await archive.compact("alpha", NOW)).dropped_contents == 0
    assert await archive.content("alpha", sha256_of("text")) == b"text"
    assert await kept.positions() == [at(2), at(3)]


async def test_appends_and_compactions_at_once(archive: Archive, kept: ArchiveAt) -> None:
    """Concurrent appends and compactions leave a sound and complete archive."""
    for turn in range(0, 100, 10):
        await archive.append("alpha", [logged("a", turn + 1, "text"), logged("a", turn + 2)])
        await asyncio.gather(
            *(archive.compact("alpha", NOW) for _ in range(2)),
            *(archive.append("alpha", [logged(f"b{n}", turn + 3 + n, "text")]) for n in range(3)),
        )
        assert await archive.content("alpha", sha256_of("text")) == b"text"
        await archive.append("alpha", [logged(f"b{n}", turn + 6 + n) for n in range(3)])
    assert (await archive.check("alpha")).is_sound
    assert {change.event.data.uri for change in await kept.changes()} == {"a", "b0", "b1", "b2"}


async def test_one_compaction_at_a_time(archive: Archive, worker: Database) -> None:
    """A second compaction of a project does nothing."""
    await archive.append("alpha", [logged("a", 1, "a1"), logged("a", 2, "a2")])
    async with Replacing(worker).alone(1) as is_mine:
        assert is_mine
        assert (await archive.compact("alpha", NOW)).dropped_events == 0
    assert (await archive.compact("alpha", NOW)).dropped_events == 1


@pytest.mark.parametrize("method", ["events", "contents"])
async def test_what_a_killed_compaction_leaves_is_swept_up(
    archive: Archive, kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A killed compaction changes nothing, and its files are removed later."""
    await archive.append("alpha", [logged("a", 1, "a1"), logged("a", 2, "a2")])
    await archive.append("alpha", [logged("b", 3, "b1"), logged("b", 4, "b2")])

    async def die(*_: object, **__: object) -> int:
        raise Unavailable("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Replacing, method, die)
        with pytest.raises(Unavailable):
            await archive.compact("alpha", NOW)
    wanted = [sha256_of(text) for text in ("a2", "b2")]
    assert len(await archive.contents("alpha", wanted)) == 2
    assert {at(2), at(4)} <= set(await kept.positions())
    assert (await archive.check("alpha")).is_sound
    assert len((await archive.check("alpha", grace=AT_ONCE)).orphans) == 1
    await archive.compact("alpha", NOW, grace=AT_ONCE)
    assert await kept.positions() == [at(2), at(4)]
    assert (await archive.check("alpha", grace=AT_ONCE)).is_sound


async def test_whole_files_without_an_index_are_taken_in(
    archive: Archive, kept: ArchiveAt, worker: Database
) -> None:
    """Whole files that the index lacks are adopted, and partial files removed."""
    await archive.append("alpha", [logged("a", 1, "one"), logged("b", 2, "two")])
    project_id = await kept.projects.ensure("alpha")
    async with worker.scope(project_id) as connection:
        await connection.execute("delete from archive_contents")
        await connection.execute("delete from archive_segments")
    assert await kept.changes() == []
    path = kept.files("events")[0]
    path.with_name("half.zst").write_bytes(path.read_bytes()[:-1])
    path.with_name(".half.unfinished").write_bytes(b"")
    assert len((await archive.check("alpha", grace=AT_ONCE)).orphans) == 4
    assert (await archive.compact("alpha", moment(0), grace=AT_ONCE)).removed_files == 2
    assert await kept.positions() == [at(1), at(2)]
    assert await archive.content("alpha", sha256_of("two")) == b"two"
    assert (await archive.check("alpha", grace=AT_ONCE)).is_sound


async def test_what_is_older_than_the_project_is_left_alone(
    archive: Archive, kept: ArchiveAt
) -> None:
    """Files older than the project stay, because another database may need them."""
    await archive.append("alpha", [logged("a", 1, "one")])
    path = kept.files("events")[0].with_name("half.zst")
    path.write_bytes(b"of another database")
    yesterday = (datetime.now(UTC) - timedelta(days=1)).timestamp()
    os.utime(path, (yesterday, yesterday))
    assert (await archive.check("alpha")).is_sound
    await archive.compact("alpha", NOW)
    assert path.read_bytes() == b"of another database"


async def test_a_damaged_file_is_left_as_it_is(archive: Archive, kept: ArchiveAt) -> None:
    """A damaged file stays, and nothing is removed because of its changes."""
    await archive.append("alpha", [logged("a", 1, "a1")])
    await archive.append("alpha", [logged("a", 2, "a2"), logged("b", 3, "b1")])
    await archive.append("alpha", [logged("b", 4, "b2"), logged("b", 5, "b3")])
    path = kept.files("events")[1]
    flip(path, -10)
    done = await archive.compact("alpha", NOW)
    assert [error.path for error in done.damaged] == [str(path)]
    assert (done.dropped_events, done.dropped_contents) == (1, 0)
    flip(path, -10)
    assert sorted(await kept.positions()) == [at(1), at(2), at(3), at(5)]


async def test_a_damaged_pack_is_left_as_it_is(archive: Archive, kept: ArchiveAt) -> None:
    """A damaged pack stays, and the others are merged."""
    texts = ["one", "two", "three"]
    for seconds, text in enumerate(texts):
        await archive.append("alpha", [logged(text, seconds, text)])
    pack = kept.files("contents")[1]
    flip(pack, -10)
    done = await archive.compact("alpha", NOW, grace=AT_ONCE)
    assert [error.path for error in done.damaged] == [str(pack)]
    await archive.compact("alpha", NOW, grace=AT_ONCE)
    assert len(kept.files("contents")) == 2
    wanted = [sha256_of(text) for text in texts]
    assert len(await archive.contents("alpha", wanted, damaged=lambda _: None)) == 2
    flip(pack, -10)
    assert (await archive.check("alpha", grace=AT_ONCE)).is_sound


async def test_check_names_what_is_damaged_missing_and_lost(
    archive: Archive, kept: ArchiveAt
) -> None:
    """A check reports damaged, missing and orphaned files."""
    await archive.append("alpha", [logged("a", 1, "a1"), logged("b", 2, "b1")])
    await archive.append("alpha", [logged("a", 3, "a2")])
    assert (await archive.check("alpha", grace=AT_ONCE)).is_sound
    packs, events = kept.files("contents"), kept.files("events")
    flip(packs[0], 9)
    flip(events[0], -9)
    events[1].unlink()
    (events[1].parent / ".half.unfinished").write_bytes(b"half")
    found = await archive.check("alpha", grace=AT_ONCE)
    assert {(error.path, error.blocks) for error in found.damaged} == {
        (str(packs[0]), (0,)),
        (str(events[0]), (0,)),
    }
    assert found.missing == (str(events[1]),)
    assert [Path(path).name for path in found.orphans] == [".half.unfinished"]
    assert not found.is_sound
