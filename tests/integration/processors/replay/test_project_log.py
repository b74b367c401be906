"""Changes that are folded, and then read again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from events.client.client import Client
from events.models import DocumentChange, DocumentChanged
from events.names import Lane, LogPosition, Topic
from events.streams.changes import LoggedChange, StreamedChange, read_changes
from processors.replay import project_log
from processors.replay.fold import Fold, LastChange
from processors.replay.project_log import EntriesByProject, ProjectLog
from processors.replay.verification import NotSwitched
from processors.wiring.operator_tools import OperatorTools
from tests.support.databases import Database
from tests.support.replays import tools


async def publish(opened: OperatorTools, redis_url: str) -> list[LoggedChange]:
    """Publish three versions and a rename to the streams; read the changes."""
    changes = [
        DocumentChange(project="docs", uri="a", content="first"),
        DocumentChange(project="docs", uri="a", content="second"),
        DocumentChange(project="docs", uri="b", content="third"),
        DocumentChange(project="docs", uri="c", content="third", change="rename", old_uri="b"),
    ]
    async with Client.connect(redis_url) as client:
        for change in changes:
            await client.publish(DocumentChanged(data=change), Lane.LIVE)
    return [read.change async for read in read_changes(opened.redis, opened.names)]


async def read_again(log: ProjectLog, fold: Fold) -> dict[str, LastChange]:
    """Last changes by uri."""
    return {last.uri: last async for last in log.last_changes(fold, fold.missing())}


async def test_a_change_is_read_from_its_stream_or_from_the_archive(
    redis_url: str, database: Database
) -> None:
    """A change that was trimmed after the fold was read is in the archive."""
    async with tools(redis_url, database) as opened:
        await opened.projects.ensure("docs")
        changes = await publish(opened, redis_url)
        log, fold = ProjectLog.of("docs", opened), Fold()
        await log.read(fold)
        assert texts(await read_again(log, fold)) == {"a": "second", "b": None, "c": "third"}
        await trim(opened, changes[:2])
        with pytest.raises(NotSwitched) as failed:
            await read_again(log, fold)
        assert [difference.uri for difference in failed.value.differences] == ["a"]
        await opened.archive.append("docs", changes)
        last = await read_again(log, fold)
        assert {uri: each.deleted for uri, each in last.items()} == {
            "a": False,
            "b": True,
            "c": False,
        }
        assert last["a"].log_position == changes[1].log_position
        assert last["a"].change.event.data.content_ref is not None


async def test_the_streams_are_read_once_for_the_logs_of_many_projects(
    redis_url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each log has the changes of its project alone, and those that were published later."""
    read: list[StreamedChange] = []

    async def counted(*arguments: Any) -> AsyncIterator[StreamedChange]:
        async for change in read_changes(*arguments):
            read.append(change)
            yield change

    monkeypatch.setattr(project_log, "read_changes", counted)
    async with tools(redis_url, database) as opened:
        changes = await publish(opened, redis_url)
        entries = EntriesByProject(opened.redis, opened.names)
        logs = {name: ProjectLog.of(name, opened, entries) for name in ("docs", "notes", "none")}
        folds = {name: Fold() for name in logs}
        await publish_one(redis_url, "notes", "d")
        for name, log in logs.items():
            await log.read(folds[name])
        assert uris(folds) == {"docs": {"a", "b", "c"}, "notes": {"d"}, "none": set()}
        assert texts(await read_again(logs["docs"], folds["docs"]))["a"] == "second"
        await publish_one(redis_url, "docs", "e")
        later = Fold()
        await logs["docs"].read_new(later)
        assert uris({"docs": later}) == {"docs": {"e"}}
        again = Fold()
        await logs["docs"].read_new(again, changes[2].position)
        assert uris({"docs": again})["docs"] >= {"b", "c", "e"}
    assert len(read) == len(changes) + 2


async def publish_one(redis_url: str, project: str, uri: str) -> None:
    """Publish a document."""
    async with Client.connect(redis_url) as client:
        change = DocumentChange(project=project, uri=uri, content="text")
        await client.publish(DocumentChanged(data=change), Lane.LIVE)


def uris(folds: Mapping[str, Fold]) -> dict[str, set[str]]:
    """Uris in each fold."""
    return {
        name: {fold.key(row).uri for row in fold.missing().tolist()} for name, fold in folds.items()
    }


def texts(last: dict[str, LastChange]) -> dict[str, str | None]:
    """Contents of the parts by uri."""
    return {uri: each.alone().event.data.content for uri, each in last.items()}


async def trim(opened: OperatorTools, changes: Sequence[LoggedChange]) -> None:
    """Remove changes from their stream."""
    for change in changes:
        own = LogPosition(*change.log_position)
        await opened.redis.xdel(
            opened.names.stream(Topic.CHANGED_LIVE, own.partition), own.entry_id
        )
