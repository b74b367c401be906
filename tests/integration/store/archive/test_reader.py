"""Reader of the archive: changes and contents, also from damaged files."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from events.names import LogPosition
from runtime.errors import Unavailable
from store.archive import Archive, DamagedSegment
from store.archive.files import Files
from store.documents import contents, ledger
from store.postgres.pool import Database
from tests.support.archives import ArchiveAt, flip
from tests.support.changes import at, logged, moment, reference_to, sha256_of


async def test_changes_come_back_in_order_with_their_contents_apart(
    archive: Archive, kept: ArchiveAt
) -> None:
    """Changes are read in order, and each content is found by its hash."""
    changes = [
        logged("a", 1, "text of a", title="A", collections=("x",), metadata={"n": 1}),
        logged("b", 2, "text of b", agent="ann"),
        logged("a", 3),
    ]
    appended = await archive.append("alpha", [changes[2], changes[0], changes[1]])
    assert (appended.events, appended.contents, appended.missing) == (3, 2, 0)
    found = await kept.changes()
    assert [change.log_position for change in found] == [change.log_position for change in changes]
    assert found[0].event.data.content_ref == reference_to("text of a")
    assert found[0].event.data.content_hash == sha256_of("text of a")
    assert found[2].event == changes[2].event
    wanted = [sha256_of("text of a"), sha256_of("text of b"), sha256_of("neither")]
    assert await archive.contents("alpha", wanted) == {
        sha256_of("text of a"): b"text of a",
        sha256_of("text of b"): b"text of b",
    }
    assert await archive.content("alpha", sha256_of("text of a")) == b"text of a"
    assert await archive.content("alpha", sha256_of("neither")) is None


async def test_reading_begins_after_a_position(archive: Archive, kept: ArchiveAt) -> None:
    """Reading can start after a position."""
    await archive.append("alpha", [logged("a", 1, "a"), logged("a", 2, "b")])
    await archive.append("alpha", [logged("a", 3, "c")])
    assert [change.position for change in await kept.changes(at(1))] == [at(2), at(3)]
    assert [change.position for change in await kept.changes(at(2))] == [at(3)]


async def test_changes_are_read_again_by_their_positions(archive: Archive, kept: ArchiveAt) -> None:
    """Changes at positions are read, and files without any of them are not."""
    for first in (1, 3, 5):
        await archive.append("alpha", [logged("a", first, "a"), logged("b", first + 1, "b")])
    kept.files("events")[1].unlink()
    wanted = np.array([at(2), at(5), at(6), at(9)])
    changes = [change async for change in archive.events_at("alpha", wanted)]
    assert [change.position for change in changes] == [at(2), at(5), at(6)]
    assert changes[0].event.data.content_ref == reference_to("b")
    assert [change async for change in archive.events_at("alpha", wanted[:0])] == []
    with pytest.raises(DamagedSegment):
        await anext(archive.events_at("alpha", np.array([at(3)])))


async def test_content_is_kept_once(archive: Archive, kept: ArchiveAt) -> None:
    """Content is stored once, within a batch and over several."""
    first = await archive.append("alpha", [logged("a", 1, "same"), logged("b", 2, "same")])
    second = await archive.append("alpha", [logged("c", 3, "same")])
    assert (first.contents, second.contents) == (1, 0)
    assert len(kept.files("contents")) == 1


async def test_a_change_archived_again_is_read_once(archive: Archive, kept: ArchiveAt) -> None:
    """A change that was archived twice is read once."""
    batch = [logged("a", 1, "a"), logged("b", 2, "b")]
    await archive.append("alpha", batch)
    await archive.append("alpha", [*batch, batch[0], logged("c", 3, "c")])
    assert await kept.positions() == [at(1), at(2), at(3)]


async def test_content_by_reference_is_taken_along(
    archive: Archive, kept: ArchiveAt, worker: Database
) -> None:
    """Content by reference is archived; a change without its content is archived too."""
    project_id = await kept.projects.ensure("alpha")
    async with worker.scope(project_id) as connection:
        await contents.put(connection, project_id, "long text")
    changes = [
        logged("a", 1, content_ref=reference_to("long text")),
        logged("b", 2, content_ref=reference_to("nowhere")),
    ]
    appended = await archive.append("alpha", changes)
    assert (appended.events, appended.contents, appended.missing) == (2, 1, 1)
    assert await archive.content("alpha", sha256_of("long text")) == b"long text"
    assert await archive.content("alpha", sha256_of("nowhere")) is None
    assert [change.event.id for change in await kept.changes()] == [
        change.event.id for change in changes
    ]


async def test_the_outbox_forgets_what_is_archived(
    archive: Archive, kept: ArchiveAt, worker: Database
) -> None:
    """Archiving a change removes its event from the outbox."""
    project_id = await kept.projects.ensure("alpha")
    async with worker.scope(project_id) as connection:
        await connection.executemany(
            "insert into outbox (project_id, event_id, lane, partition, event) "
            "values ($1, $2, 'live', 0, '')",
            [(project_id, "one"), (project_id, "two")],
        )
    await archive.append("alpha", [logged("a", 1, "a", event_id="one")])
    async with worker.scope(project_id) as connection:
        left = await connection.fetch("select event_id from outbox")
    assert [row["event_id"] for row in left] == ["two"]


async def test_a_full_disk_leaves_nothing_of_an_append(
    archive: Archive, kept: ArchiveAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed append leaves nothing, and can be repeated."""
    batch = [logged("a", 1, "text")]
    write = Files.write

    def fail(self: Files, path: str, data: bytes) -> None:
        if "/events/" in path:
            raise Unavailable(f"{path}: no space is left")
        write(self, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "write", fail)
        with pytest.raises(Unavailable, match="no space"):
            await archive.append("alpha", batch)
    assert await kept.changes() == []
    assert (await archive.check("alpha", grace=timedelta(0))).is_sound
    await archive.append("alpha", batch)
    assert await kept.positions() == [at(1)]


async def test_projects_do_not_share_contents(archive: Archive) -> None:
    """Content of another project is not found by its hash."""
    await archive.append("alpha", [logged("a", 1, "secret")])
    await archive.append("beta", [logged("b", 1, "other", project="beta")])
    assert await archive.contents("beta", [sha256_of("secret")]) == {}
    assert [change async for change in archive.events("gamma")] == []
    assert await archive.contents("gamma", [sha256_of("secret")]) == {}


async def test_in_memory_and_by_url(worker: Database, kept: ArchiveAt) -> None:
    """The archive works on another file system of fsspec."""
    archive = Archive(worker, kept.projects, "memory://headrace-test/archive")
    await archive.append("alpha", [logged("a", 1, "text")])
    assert [change.position async for change in archive.events("alpha")] == [at(1)]
    assert await archive.content("alpha", sha256_of("text")) == b"text"
    assert kept.files("events") == []


async def test_a_flipped_byte_is_found_wherever_it_is(archive: Archive, kept: ArchiveAt) -> None:
    """A flipped byte anywhere is reported with its file, and other files are read."""
    await archive.append("alpha", [logged("a", 1, "a")])
    await archive.append("alpha", [logged("b", 2, "b")])
    path = kept.files("events")[0]
    whole = path.read_bytes()
    for at_byte in range(len(whole)):
        flip(path, at_byte)
        with pytest.raises(DamagedSegment, match=path.name):
            await kept.changes()
        damaged: list[DamagedSegment] = []
        rest = [change async for change in archive.events("alpha", damaged=damaged.append)]
        assert [error.path for error in damaged] == [str(path)]
        lost = damaged[0].lost  # 0 if Zstandard ignores the flipped bit
        assert [change.position for change in rest] == [at(1), at(2)][lost:]
        path.write_bytes(whole)
    assert len(await kept.changes()) == 2


async def test_damage_costs_one_block(archive: Archive, kept: ArchiveAt) -> None:
    """A flipped byte costs one block of its file."""
    changes = [logged(f"file-{number}", number) for number in range(3000)]
    await archive.append("alpha", changes)
    (path,) = kept.files("events")
    flip(path, path.stat().st_size // 2)
    damaged: list[DamagedSegment] = []
    rest = [change async for change in archive.events("alpha", damaged=damaged.append)]
    assert damaged[0].lost == 3000 - len(rest) < 1000
    assert rest[0].position == at(0)
    assert rest[-1].position == at(2999)
    assert len(damaged[0].blocks) == 1


async def test_damaged_content_is_named_and_the_rest_is_read(
    archive: Archive, kept: ArchiveAt
) -> None:
    """Damaged and missing contents are reported with their file, and the rest is read."""
    texts = [f"text number {number}" for number in range(20)]
    await archive.append("alpha", [logged(f"a{i}", i, text) for i, text in enumerate(texts)])
    (path,) = kept.files("contents")
    flip(path, -10)
    wanted = [sha256_of(text) for text in texts]
    with pytest.raises(DamagedSegment, match=path.name):
        await archive.contents("alpha", wanted)
    damaged: list[DamagedSegment] = []
    found = await archive.contents("alpha", wanted, damaged=damaged.append)
    assert (len(found), [error.lost for error in damaged]) == (19, [1])
    path.unlink()
    with pytest.raises(DamagedSegment, match="missing"):
        await archive.contents("alpha", wanted)


async def test_statistics_and_beginning(archive: Archive) -> None:
    """Statistics count files, changes, contents and bytes; the beginning is the first position."""
    assert await archive.statistics("alpha") is None
    await archive.append("alpha", [logged("a", 1, "x" * 10_000), logged("b", 2, "y")])
    found = await archive.statistics("alpha")
    assert found is not None
    assert (found.files, found.events, found.contents) == (2, 2, 2)
    assert found.raw_bytes > 10_000 > found.stored_bytes > 0
    beginning = await archive.beginning("alpha")
    assert beginning is not None
    assert (beginning.position, beginning.at) == (at(1), moment(1))


async def test_an_event_is_found_by_its_id(
    archive: Archive, kept: ArchiveAt, worker: Database
) -> None:
    """The position of an event is found in the ledger or in the archive."""
    await archive.append("alpha", [logged("a", 1, "a", event_id="first")])
    project_id = await kept.projects.ensure("alpha")
    async with worker.scope(project_id) as connection:
        entry = ledger.Entry(LogPosition(at(7), 0), "second", "indexed")
        await ledger.record(connection, project_id, [entry])
    assert await archive.position_of("alpha", "first") == at(1)
    assert await archive.position_of("alpha", "second") == at(7)
    assert await archive.position_of("alpha", "third") is None
    assert await archive.position_of("beta", "first") is None
