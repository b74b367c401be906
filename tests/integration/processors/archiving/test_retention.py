"""A document whose tombstone has expired does not come back from the log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from events.models import DocumentChange, DocumentChanged
from events.names import POSITION_FIELD, Lane, LogPosition, Names, Topic
from events.streams.dead_letters import DeadLetters
from runtime.settings import RetentionSettings
from store.purge.expiry import Expiry
from store.search.vector_indexes import VectorIndexes
from tests.support.databases import Database
from tests.support.doctors import examine, finding_names, is_archived
from tests.support.replays import HASHING, damage, replay, rows, tools
from tests.support.running import headrace
from tests.support.waiting import eventually

NAMES = Names()
STREAM = NAMES.stream(Topic.of_lane(Lane.LIVE))
OLD_MS = int((datetime.now(UTC) - timedelta(days=200)).timestamp() * 1000)
STATES = "select uri, deleted from documents where generation_id = $1 order by uri"


def _fields(**data: Any) -> dict[Any, Any]:
    change = DocumentChange(project="docs", **data)
    return {"event": DocumentChanged(data=change).to_bytes()}


async def test_neither_a_redrive_nor_a_replay_brings_back_a_deleted_document(
    redis: Redis, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """An old change is a dead letter, a replay deletes the document again, the doctor agrees."""
    await redis.xadd(STREAM, _fields(uri="gone.md", content="# Gone"), id=f"{OLD_MS}-0")
    await redis.xadd(STREAM, _fields(uri="kept.md", content="# Kept"), id=f"{OLD_MS + 1}-0")
    await redis.xadd(STREAM, _fields(uri="gone.md", change="delete"), id=f"{OLD_MS + 9}-0")
    async with (
        headrace(redis_url, database, model=HASHING, home=tmp_path),
        tools(redis_url, database, home=tmp_path) as opened,
    ):
        await eventually(lambda: is_archived(opened), "everything is archived")
        await eventually(lambda: _count(database), "everything is indexed")
        await redis.xtrim(STREAM, maxlen=0, approximate=False)
        await damage(
            database, "update ledger set handled_at = now() - interval '100 days' where $1::int > 0"
        )
        indexes = VectorIndexes(opened.database, None, 10_000)
        expiry = Expiry(opened.database, indexes, RetentionSettings())
        assert await expiry.run_once(datetime.now(UTC)) == {"ledger": 2, "tombstones": 1}
        assert await _states(database) == {"kept.md": False}
        assert not finding_names(await examine(opened))

        position = LogPosition.of_entry(Lane.LIVE, 0, f"{OLD_MS + 5}-0")
        redriven = _fields(uri="gone.md", content="# Old") | {POSITION_FIELD: position.position}
        await redis.xadd(STREAM, redriven)
        letters = DeadLetters(redis, NAMES)
        await eventually(lambda: letters.list(1), "the old change is a dead letter")
        [letter] = await letters.list(10)
        assert letter.error == "OutdatedChange"
        assert await _states(database) == {"kept.md": False}
        assert not finding_names(await examine(opened))

        await replay(opened)
        assert await _states(database) in (
            {"kept.md": False},
            {"gone.md": True, "kept.md": False},
        )
        assert not finding_names(await examine(opened))


async def _states(database: Database) -> dict[str, bool]:
    return {row["uri"]: row["deleted"] for row in await rows(database, "docs", STATES)}


async def _count(database: Database) -> bool:
    return await _states(database) == {"gone.md": True, "kept.md": False}
