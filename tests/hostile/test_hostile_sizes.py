"""Oversized input: refused before any work is done for it."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from content.detection import SizeLimits
from events.models import ContentReference, DocumentChange, DocumentChanged
from events.names import LogPosition, Names, Topic
from events.streams.changes import LoggedChange
from processors.indexing.preparation import Resolver
from runtime.errors import LimitExceeded
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.hostile_worker import Innocents, hostile_worker
from tests.support.tally import Record

BODY_BYTES = 64 * 2**20
MOST_RSS_BYTES = 900 * 2**20


async def test_a_body_of_64_mb(
    redis_url: str, database: Database, tmp_path: Path, record: Record
) -> None:
    """An event of 64 MB becomes a dead letter, and the command line refuses it in one line."""
    head = b'{"type": "document.changed", "data": {"project": "big", "uri": "u", "content": "'
    body = head + b"x" * BODY_BYTES + b'"}}'
    async with hostile_worker(redis_url, database, tmp_path / "home") as suspect:
        async with Innocents(suspect.client).at_work():
            key = Names().stream(Topic.CHANGED_LIVE)
            # the public client would give up the write after a few seconds
            async with Redis.from_url(redis_url) as patient:
                entry_id: Any = await patient.xadd(key, {"event": body})
            await suspect.passed({Topic.CHANGED_LIVE: entry_id.decode()})
        await suspect.settled()
        [(letter, _)] = await suspect.letters()
        assert letter.error == "MalformedEvent"
        assert "33,554,432" in letter.detail
        assert hashlib.sha256(letter.event).digest() == hashlib.sha256(body).digest()
        assert suspect.peak_rss_bytes() < MOST_RSS_BYTES
        assert not suspect.defects()
    cli = Cli(environment_of(redis_url, database, tmp_path / "home"))
    line = (await cli("publish", stdin=body)).line
    assert "line 1: " in line
    assert "too many for an event" in line
    record("bodies of 64 MB", Counter({"refused": 2}))


async def test_content_by_reference_is_not_fetched_when_it_says_that_it_is_too_large() -> None:
    """Content larger than its stated size is fetched once and refused."""

    async def fetch(project: str, sha256: str) -> bytes:
        fetched.append(sha256)
        return content

    fetched: list[str] = []
    content = b"x" * 101
    digest = hashlib.sha256(content).hexdigest()
    for size_bytes, times in ((101, 0), (1, 1)):
        reference = ContentReference(sha256=digest, size_bytes=size_bytes)
        change = DocumentChange(project="p", uri="u", content_ref=reference)
        logged = LoggedChange(LogPosition(1, 0), DocumentChanged(data=change))
        resolved, [failure] = await Resolver(fetch, SizeLimits(100, 100)).resolve([logged])
        assert isinstance(failure.error, LimitExceeded)
        assert not resolved
        assert len(fetched) == times
