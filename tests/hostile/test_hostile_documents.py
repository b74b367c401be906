"""Documents that break parsers (500): from a directory, a repository, and as events."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg

from events.client.publisher import Receipt
from events.models import DocumentChanged, DocumentRejected
from events.names import Lane, Names, Topic
from sources import document_changed, open_source
from tests.support.databases import Database
from tests.support.hostile_documents import HostileDocument, hostile_documents
from tests.support.hostile_worker import REASONS, Innocents, Suspect, hostile_worker
from tests.support.repositories import create_repository, write_files
from tests.support.syncs import begin
from tests.support.tally import Record

COUNT = 500
LIMIT_BYTES = 2 * 2**20
PATIENCE = timedelta(minutes=5)
MOST_RSS_BYTES = 700 * 2**20
BULK = Names().stream(Topic.CHANGED_BULK)


async def test_they_are_indexed_skipped_or_refused_and_others_are_served(
    redis_url: str, database: Database, tmp_path: Path, record: Record
) -> None:
    """Text is indexed unchanged or refused with a reason; other files are not published."""
    documents = list(hostile_documents(COUNT))
    events, found = await asyncio.to_thread(synced, tmp_path, documents)
    async with hostile_worker(
        redis_url,
        database,
        tmp_path / "home",
        chunking_limits=json.dumps({"timeout": 1, "memory_bytes": 2**30}),
    ) as suspect:
        innocents = Innocents(suspect.client)
        async with innocents.at_work():
            receipts = await suspect.client.publish_many(events, Lane.BULK)
            others = [one for one in documents if one.name not in {e.data.uri for e in events}]
            dead = await refused(suspect, others)
            indexed = await fates(suspect, receipts, events, found)
        await suspect.settled()
        assert suspect.peak_rss_bytes() < MOST_RSS_BYTES
        assert not suspect.defects()
    assert await stored(database) == {e.data.uri: e.data.content_hash for e in indexed}
    record("that are no text, as events", Counter({"refused": dead, "blank": len(others) - dead}))
    record(f"documents, {innocents.served} innocents served", found)


def synced(
    home: Path, documents: Sequence[HostileDocument]
) -> tuple[list[DocumentChanged], Counter[str]]:
    """Changes that a directory of documents publishes; a repository must publish the same."""
    files: dict[str, str | bytes] = {one.name: one.raw for one in documents}
    directory = home / "plain"
    write_files(directory, files)
    repository = create_repository(home / "git", files)
    contents = []
    for path in (repository.path, directory):
        run = begin(open_source(path), max_bytes=LIMIT_BYTES)
        events = [document_changed(change, "plain") for change in run]
        contents.append({event.data.uri: event.data.content for event in events})
        assert run.report.found == len(documents)
    assert contents[0] == contents[1]
    skips = Counter({f"skipped: {reason}": count for reason, count in run.report.skipped.items()})
    assert len(events) + skips.total() == len(documents)
    return events, skips


async def refused(suspect: Suspect, documents: Sequence[HostileDocument]) -> int:
    """Send bytes that are not text as events, and count those refused with a known reason."""
    for one in documents:
        content = one.raw.decode(errors="surrogateescape")
        data = {"project": "raw", "uri": one.name, "content": content}
        event = json.dumps({"type": "document.changed", "data": data}).encode()
        entry_id: Any = await suspect.redis.xadd(BULK, {"event": event})
    await suspect.passed({Topic.CHANGED_BULK: entry_id.decode()})
    letters = [letter for letter, _ in await suspect.letters() if b'"raw"' in letter.event]
    assert {letter.error for letter in letters} <= REASONS
    return len(letters)


async def fates(
    suspect: Suspect,
    receipts: Sequence[Receipt],
    events: Sequence[DocumentChanged],
    found: Counter[str],
) -> list[DocumentChanged]:
    """Count the outcomes, and return the events that were indexed."""
    outcomes = await suspect.client.wait(receipts, PATIENCE)
    indexed = []
    for receipt, event in zip(receipts, events, strict=True):
        outcome = outcomes[receipt.token]
        if isinstance(outcome, DocumentRejected):
            assert outcome.data.problem.type in REASONS
            found[f"refused: {outcome.data.problem.type}"] += 1
        else:
            found["indexed"] += 1
            indexed.append(event)
    assert len(indexed) > COUNT / 2, "most of them are odd, and still text"
    return indexed


async def stored(database: Database) -> dict[str, str]:
    """Hash of the stored content by uri."""
    owner = await asyncpg.connect(database.owner_url)
    rows = await owner.fetch(
        "select d.uri, d.content_hash from documents d "
        "join generations g on g.id = d.generation_id "
        "join projects p on p.id = g.project_id where p.name = 'plain'"
    )
    await owner.close()
    return {row["uri"]: row["content_hash"] for row in rows}
