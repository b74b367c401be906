"""Findings about streams, ledger, dead letters and archive."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from events.names import ARCHIVER, Lane, LogPosition, Topic
from events.streams.changes import read_changes
from events.streams.dead_letters import DeadLetter
from events.streams.entries import entries_of
from processors.doctor.stream_snapshot import INDEXER
from processors.wiring.operator_tools import OperatorTools
from tests.support.archives import flip
from tests.support.databases import Database
from tests.support.doctors import Indexed, examine, finding_names, forget_archive
from tests.support.replays import damage, rows

LIVE = Topic.CHANGED_LIVE


@pytest.fixture
def database(indexed_database: Database) -> Database:
    """Database of the index."""
    return indexed_database


@pytest.fixture
async def opened(
    indexed: Indexed, redis_url: str, database: Database, tmp_path: Path
) -> AsyncIterator[OperatorTools]:
    """Tools of the doctor."""
    async with indexed.opened(redis_url, database, tmp_path) as opened:
        yield opened


def files(tools: OperatorTools, kind: str) -> list[Path]:
    """Archive files of a kind."""
    root = Path(tools.settings.archive_location)
    return sorted(path for path in root.glob(f"*/*/{kind}/*.zst"))


async def test_an_archived_index_has_no_finding(opened: OperatorTools) -> None:
    """An archived index has no findings, with and without the streams."""
    assert (await examine(opened)).findings == []
    await opened.redis.flushall()
    assert (await examine(opened)).findings == []


async def test_entries_that_are_done_are_acknowledged(opened: OperatorTools) -> None:
    """Pending entries of applied changes are acknowledged."""
    redis, key = opened.redis, opened.names.stream(LIVE)
    await redis.xgroup_setid(key, INDEXER, "0")
    await redis.xreadgroup(INDEXER, "ghost", {key: ">"}, count=3)
    await redis.xgroup_setid(key, INDEXER, "$")
    repaired = await examine(opened, repair=True)
    [finding] = repaired.findings
    assert (finding.name, finding.count, repaired.remaining) == ("pending.done", 3, [])
    assert (await redis.xpending(key, INDEXER))["pending"] == 0


async def test_letters_of_applied_changes_are_dropped(opened: OperatorTools) -> None:
    """A repair drops dead letters whose changes are applied."""
    redis, key = opened.redis, opened.names.stream(LIVE)
    entry = entries_of(await redis.xrange(key, count=1))[0]
    now = datetime.now(UTC)
    letter = DeadLetter(
        event=entry.fields[b"event"],
        topic=LIVE,
        partition=0,
        entry_id=entry.id,
        group=INDEXER,
        error="Unavailable",
        detail="by mistake",
        attempts=1,
        first_at=now,
        last_at=now,
    )
    await redis.xadd(opened.names.dead(LIVE), letter.to_fields())
    repaired = await examine(opened, repair=True)
    assert (finding_names(repaired), repaired.remaining) == ({"dead_letter.done"}, [])
    assert await redis.xlen(opened.names.dead(LIVE)) == 0


async def test_what_the_ledger_has_lost_is_entered_again(
    opened: OperatorTools, database: Database
) -> None:
    """Missing ledger rows are entered again, and a redriven one with its claimant."""
    redis, key = opened.redis, opened.names.stream(LIVE)
    _, first, second = entries_of(await redis.xrange(key, count=3))
    await redis.xdel(key, second.id)
    place = LogPosition.of_entry(Lane.LIVE, 0, second.id).position
    redriven: dict[Any, Any] = {**second.fields, b"position": place}
    await redis.xadd(key, redriven)
    for group in (INDEXER, ARCHIVER):
        await redis.xgroup_setid(key, group, "$")
    lost = LogPosition.of_entry(Lane.LIVE, 0, first.id).position, place
    where = f"where $1::int > 0 and position in {lost}"
    await damage(database, f"delete from ledger {where}")  # noqa: S608 - two numbers
    repaired = await examine(opened, repair=True)
    assert (finding_names(repaired), repaired.remaining) == ({"ledger.missing"}, [])
    query = f"select detail ->> 'claimant' as one from ledger {where} order by position"  # noqa: S608
    assert [row["one"] for row in await rows(database, "docs", query)] == [None, ""]


async def test_a_change_that_was_never_indexed(opened: OperatorTools, database: Database) -> None:
    """A change that is archived and not indexed is indexed by the repair."""
    before = await examine(opened)
    await opened.redis.flushall()
    await damage(database, "delete from ledger where $1::int > 0")
    await damage(
        database, "delete from chunks where generation_id = $1 and document_id is not null"
    )
    await damage(database, "delete from document_collections where generation_id = $1")
    await damage(database, "delete from documents where generation_id = $1")
    repaired = await examine(opened, repair=True)
    assert finding_names(repaired) == {"document.missing"}
    assert (repaired.failures, repaired.remaining) == ([], [])
    assert repaired.digest == before.digest


async def test_what_the_archiver_left_out_is_archived(
    opened: OperatorTools, database: Database
) -> None:
    """Changes that the archiver acknowledged without archiving are archived by the repair."""
    changes = [read.change async for read in read_changes(opened.redis, opened.names)]
    await forget_archive(database)
    await opened.archive.append("docs", changes[:10])
    repaired = await examine(opened, repair=True)
    [finding] = repaired.findings
    assert (finding.name, finding.count) == ("archive.unarchived", len(changes) - 10)
    assert (repaired.failures, repaired.remaining) == ([], [])
    found = [change.position async for change in opened.archive.events("docs")]
    assert sorted(found) == sorted(change.position for change in changes)


@pytest.mark.parametrize("kind", ["events", "contents"])
async def test_damaged_files_are_made_whole_from_the_streams(
    opened: OperatorTools, kind: str
) -> None:
    """Damage to an archive file is reported with its name and repaired from the streams."""
    file, *_ = files(opened, kind)
    flip(file, -20)
    repaired = await examine(opened, repair=True)
    [finding] = [one for one in repaired.findings if one.name == "archive.damaged"]
    assert str(file) in finding.examples(1)[0]
    assert (repaired.failures, repaired.remaining) == ([], [])
    assert (await opened.archive.check("docs")).is_sound


@pytest.mark.parametrize("kind", ["events", "contents"])
async def test_missing_files_are_written_again(opened: OperatorTools, kind: str) -> None:
    """A missing archive file is written again from the streams."""
    file, *_ = files(opened, kind)
    file.unlink()
    repaired = await examine(opened, repair=True)
    assert "archive.missing" in finding_names(repaired)
    assert (repaired.failures, repaired.remaining) == ([], [])
    await opened.redis.flushall()
    assert (await examine(opened)).findings == []


async def test_what_is_lost_for_good_is_said(opened: OperatorTools) -> None:
    """Damage without a source is reported with its file, and nothing is deleted."""
    file, *_ = files(opened, "events")
    flip(file, -20)
    await opened.redis.flushall()
    repaired = await examine(opened, repair=True)
    assert {one.name for one in repaired.remaining} >= {"archive.damaged", "document.unlogged"}
    assert any(str(file) in failure and "backup" in failure for failure in repaired.failures)
    assert repaired.documents == 13


async def test_orphans_are_removed(opened: OperatorTools, database: Database) -> None:
    """Files that the index of files lacks are removed once they are an hour old."""
    await damage(
        database, "update generations set created_at = now() - interval '1 day' where id = $1"
    )
    file, *_ = files(opened, "contents")
    young, old = file.with_name("young.zst"), file.with_name("old.zst")
    for one in (young, old):
        one.write_bytes(b"leftover")
    hours_ago = (datetime.now(UTC) - timedelta(hours=2)).timestamp()
    os.utime(old, (hours_ago, hours_ago))
    repaired = await examine(opened, repair=True)
    assert (finding_names(repaired), repaired.remaining) == ({"archive.orphans"}, [])
    assert (young.exists(), old.exists(), file.exists()) == (True, False, True)


async def test_an_outbox_without_an_archiver(opened: OperatorTools, database: Database) -> None:
    """Events that wait in the outbox for an hour are reported, with the archiver as remedy."""
    await damage(
        database,
        """
        insert into outbox (project_id, event_id, lane, partition, event, created_at)
        select project_id, 'stuck', 'live', 0, '', now() - interval '1 hour'
        from generations
        where id = $1
        """,
    )
    [finding] = (await examine(opened)).findings
    assert (finding.name, finding.examples(1)) == ("outbox.stuck", ["event stuck"])
    assert "archiver" in finding.remedy


async def test_a_change_on_its_way_is_no_finding(opened: OperatorTools) -> None:
    """A change that is published or in flight is not a finding."""
    redis, key = opened.redis, opened.names.stream(LIVE)
    [entry] = entries_of(await redis.xrange(key, count=1))
    event = entry.fields[b"event"].replace(b"notes/0.md", b"notes/new.md")
    await redis.xadd(key, {"event": event})
    assert (await examine(opened)).findings == []
    await redis.xreadgroup(INDEXER, "busy", {key: ">"})
    assert (await examine(opened)).findings == []
