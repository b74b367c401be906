"""Doctor beside busy workers: in-flight changes are not findings, and repairs do no harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from events.client.publisher import Receipt
from events.models import DocumentChange, DocumentChanged
from events.names import Lane
from tests.support.databases import Database
from tests.support.doctors import examine
from tests.support.drifts import DRIFTS
from tests.support.replays import HASHING, damage, notes, tools
from tests.support.running import PATIENCE, Headrace, headrace

LOOKS = 3
DOCUMENTS = 40
MOST_WAITING = 4
MOST_EDITS = 200
"""A slow doctor would otherwise read a log that grows faster than it reads."""


def edit(number: int) -> DocumentChanged:
    """Change number ``number`` of a series of edits, deletes and renames."""
    uri = f"busy/{number % DOCUMENTS}.md"
    text = f"# Edit {number}\n\nThe weir stands at {number}.\n\n" + f"word{number} " * 100
    if number % 7 == 0:
        data = DocumentChange(project="docs", uri=uri, change="delete")
    elif number % 11 == 0:
        data = DocumentChange(
            project="docs", uri=f"{uri}.moved", change="rename", old_uri=uri, content=text
        )
    else:
        data = DocumentChange(project="docs", uri=uri, content=text, collections=(str(number),))
    return DocumentChanged(data=data)


@asynccontextmanager
async def busy(worker: Headrace) -> AsyncIterator[list[Receipt]]:
    """Publish changes to both lanes beside the block, and wait for all of them at its end."""
    receipts: list[Receipt] = []

    async def publish() -> None:
        for number in range(1, MOST_EDITS + 1):
            lane = Lane.BULK if number % 3 == 0 else Lane.LIVE
            receipts.append(await worker.client.publish(edit(number), lane))
            if number % MOST_WAITING == 0:
                await worker.client.wait(receipts[-1:], PATIENCE)

    task = asyncio.create_task(publish())
    try:
        yield receipts
    finally:
        task.cancel()
        await asyncio.wait([task])
        await worker.client.wait(receipts, PATIENCE)


async def test_nothing_on_its_way_is_a_finding(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Checks during and after writes report no finding."""
    async with (
        headrace(redis_url, database, model=HASHING, home=tmp_path) as worker,
        tools(redis_url, database, home=tmp_path) as opened,
    ):
        await notes(worker)
        async with busy(worker) as receipts:
            for _ in range(LOOKS):
                assert (await examine(opened)).findings == []
            assert len(receipts) > LOOKS
        assert (await examine(opened)).findings == []


async def test_repairs_make_nothing_worse(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Repairs beside a writing worker leave no finding."""
    kinds = [
        ("a deleted chunk", "a lost vector"),
        ("all segments removed", "a changed vector"),
        ("a segment twice", "a segment with fewer postings"),
    ]
    async with (
        headrace(redis_url, database, model=HASHING, home=tmp_path) as worker,
        tools(redis_url, database, home=tmp_path) as opened,
    ):
        await notes(worker)
        async with busy(worker):
            for pair in kinds:
                for kind in pair:
                    await damage(database, DRIFTS[kind].statement)
                await damage(
                    database,
                    """
                    delete from chunks c using documents d
                    where c.generation_id = $1 and d.generation_id = $1 and d.id = c.document_id
                        and d.uri like 'busy/%5.md'
                    """,
                )
                await examine(opened, repair=True)
        repaired = await examine(opened, repair=True)
        assert not repaired.failures
        assert (await examine(opened)).findings == []
