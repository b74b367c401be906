"""Replays that don't switch: the error, and the unchanged live generation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from processors.replay.generations import drop
from processors.replay.verification import NotSwitched
from processors.wiring.operator_tools import OperatorTools
from processors.worker import ROLES
from runtime.errors import ConfigurationError, HeadraceError, Unavailable, UsageError
from tests.support.databases import Database
from tests.support.doctors import Indexed
from tests.support.replays import (
    HASHING,
    Struck,
    damage_at_once,
    generation_states,
    notes,
    replay,
    struck,
    tools,
)
from tests.support.running import headrace


@pytest.fixture
async def opened(
    indexed: Indexed, redis_url: str, indexed_database: Database, tmp_path: Path
) -> AsyncIterator[OperatorTools]:
    """Tools of replays, with an index."""
    async with indexed.opened(redis_url, indexed_database, tmp_path) as opened:
        yield opened


TORN = """
    update keyword_segments set postings = substring(postings for 20) where generation_id = $1
"""
OTHER = "update embeddings set embedding = embedding - embedding where generation_id = $1"
TOMORROW = (datetime.now(UTC) + timedelta(days=1)).isoformat()


REFUSED: list[tuple[dict[str, Any], type[HeadraceError], str]] = [
    ({"since": "no-such-event"}, UsageError, "no event 'no-such-event'"),
    ({"since": "1999-12-31"}, UsageError, "the log begins later, at 20"),
    ({"since": TOMORROW}, UsageError, "lies in the future"),
    ({"chunking": "99"}, UsageError, "no chunking '99'"),
    ({"chunking": "1:128", "kind": "code"}, UsageError, "--chunking applies to all"),
    ({"model": HASHING, "collection": "c"}, UsageError, "leave out --from"),
    ({"collection": "nobody"}, UsageError, "in the collection 'nobody'"),
    ({"model": "openai/other"}, ConfigurationError, "needs a key; set HEADRACE_MODEL_API_KEY"),
    ({"model": "nonsense"}, ConfigurationError, "no provider is known"),
    ({"model": "local/other"}, ConfigurationError, "no local model local/other"),
]


async def test_what_can_not_be_done_is_refused_before_anything_begins(
    opened: OperatorTools,
) -> None:
    """Each error names the fault, and no generation is created."""
    for choice, error, says in REFUSED:
        with pytest.raises(error, match=says):
            await replay(opened, **choice)
        assert await generation_states(opened) == ["live"], choice


async def test_a_model_that_can_not_be_reached_is_refused(
    indexed: Indexed, redis_url: str, indexed_database: Database, tmp_path: Path
) -> None:
    """A model that can't be reached is refused before anything is built."""
    nowhere = {"model_base_url": "http://127.0.0.1:9/v1", "model_requests": {"retries": 0}}
    async with indexed.opened(redis_url, indexed_database, tmp_path, **nowhere) as opened:
        with pytest.raises(Unavailable, match="openai/test can't be reached"):
            await replay(opened, model="openai/test")
        assert await generation_states(opened) == ["live"]


async def test_one_replay_of_a_project_at_a_time(opened: OperatorTools) -> None:
    """A second replay of a project is refused while the first runs."""
    second: list[asyncio.Task[object]] = []
    with struck("replay.building", lambda: second.append(asyncio.create_task(replay(opened)))):
        report = await replay(opened)
    with pytest.raises(UsageError, match="docs is being replayed by another process"):
        await second[0]
    assert report.switched


async def test_another_choice_does_not_go_on_with_what_is_half_built(opened: OperatorTools) -> None:
    """Another choice is refused with the command that drops the unfinished generation."""
    with struck("replay.building"), pytest.raises(Struck):
        await replay(opened)
    with pytest.raises(UsageError, match=r"`headrace replay drop \d+`") as refused:
        await replay(opened, chunking="1:64")
    generation = int(str(refused.value).rsplit("drop ", 1)[1].rstrip("`"))
    assert await drop(opened, generation, lambda _: None) > 0
    assert (await replay(opened, chunking="1:64")).switched


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("delete from chunks where generation_id = $1", "rows are not what was written"),
        ("update chunks set content = 'else' where generation_id = $1", "not what was written"),
        ("delete from embeddings where generation_id = $1", "have no vector"),
        ("delete from keyword_segments where generation_id = $1", "have no postings"),
        ("update chunks set model_id = null where generation_id = $1", "no vector of their model"),
        (TORN, "have no postings"),
        (OTHER, "a vector that does not belong to their text"),
        ("update documents set deleted = true where generation_id = $1", "it is deleted"),
        ("update documents set position = 1 where generation_id = $1", "at position 1"),
        ("update documents set content_hash = 'x' where generation_id = $1", "other content"),
    ],
)
async def test_a_generation_that_is_not_what_the_log_says_stays_dark(
    opened: OperatorTools, indexed_database: Database, statement: str, says: str
) -> None:
    """Each kind of damage prevents the switch and is reported by document."""
    live = await opened.store.generation("docs")
    with (
        struck("replay.verifying", lambda: damage_at_once(indexed_database, statement)),
        pytest.raises(NotSwitched, match="differs from the log") as failed,
    ):
        await replay(opened)
    assert any(says in one.reason for one in failed.value.differences)
    assert any(one.uri == "notes/0.md" for one in failed.value.differences)
    assert (await opened.store.generation("docs")).id == live.id


async def test_documents_whose_last_change_is_lost_keep_the_live_index(
    redis_url: str, database: Database
) -> None:
    """Documents that the log lacks prevent the replay and are named."""
    without_archiver = ROLES.keys() - {"archiver"}
    async with (
        headrace(redis_url, database, only=without_archiver, model=HASHING) as worker,
        tools(redis_url, database) as opened,
    ):
        await notes(worker)
        await opened.redis.flushall()
        with pytest.raises(NotSwitched, match="lacks the last change of 14 documents") as failed:
            await replay(opened)
        assert "moved.md" in {one.uri for one in failed.value.differences}
        assert await generation_states(opened) == ["live"]
