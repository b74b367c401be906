"""Replays inside a test's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from events.models import DocumentChange
from processors.replay.replay import Gate, Replay
from processors.replay.report import ReplayReport
from processors.replay.scope import Choice
from processors.wiring.operator_tools import OperatorTools, open_operator_tools
from runtime import failpoints
from runtime.settings import Settings
from tests.support.databases import Database
from tests.support.running import Headrace

__all__ = [
    "HASHING",
    "Struck",
    "age_switch",
    "damage",
    "damage_at_once",
    "generation_states",
    "notes",
    "replay",
    "rows",
    "struck",
    "tools",
]

HASHING = "local/hash-384"
"""Fast model, whose vectors are hashes."""


NOTES = {
    f"notes/{number}.md": f"# Note {number}\n\nThe word of note {number} is word{number}.\n"
    for number in range(12)
}


class Struck(Exception):
    """Simulated end of a process."""


@contextmanager
def struck(name: str, action: Callable[[], None] | None = None) -> Iterator[None]:
    """Raise ``Struck`` or call ``action`` when a replay first passes a failpoint."""
    passed = False

    def strike(place: str) -> None:
        nonlocal passed
        if place != name or passed:
            return
        passed = True
        if action is None:
            raise Struck(place)
        action()

    failpoints.arm(strike)
    try:
        yield
    finally:
        failpoints.disarm(strike)
    assert passed, f"{name} was never passed"


async def notes(worker: Headrace) -> None:
    """Publish twelve notes to the project ``docs``, an edit, a delete, a rename and a secret."""
    await worker.changes(NOTES)
    changes = [
        {"uri": "notes/1.md", "content": "# Note 1\n\nIt was changed.\n"},
        {"uri": "notes/2.md", "change": "delete"},
        {
            "uri": "moved.md",
            "content": NOTES["notes/3.md"],
            "change": "rename",
            "old_uri": "notes/3.md",
        },
        {"uri": "secret.md", "content": "# Secret\n\nFor ada alone.\n", "agent": "ada"},
    ]
    receipts = await worker.client.publish_many(
        [DocumentChange.model_validate({"project": "docs", **change}) for change in changes]
    )
    for receipt in receipts:
        await worker.outcome(receipt)


@asynccontextmanager
async def tools(
    redis_url: str, database: Database, **settings: Any
) -> AsyncIterator[OperatorTools]:
    """Tools of replays on the servers of a test."""
    values = {
        "redis_url": redis_url,
        "database_url": database.operator_url,
        "owner_database_url": database.owner_url,
        "model": HASHING,
        **settings,
    }
    async with open_operator_tools(Settings(**values)) as opened:
        yield opened


async def replay(
    opened: OperatorTools, project: str = "docs", gate: Gate | None = None, **choice: Any
) -> ReplayReport:
    """Replay a project."""
    work = Replay(opened, project, Choice(**choice), gate, lambda _what, _done, _total: None)
    return await work.run()


async def rows(database: Database, project: str, query: str, *values: Any) -> list[Any]:
    """Rows of a query on a project's live generation (``$1``), as the tables' owner."""
    connection = await asyncpg.connect(database.owner_url)
    try:
        project_id = await connection.fetchval("select id from projects where name = $1", project)
        await connection.execute(
            "select set_config('app.project_id', $1, false), set_config('app.agent', '*', false)",
            str(project_id),
        )
        live = await connection.fetchval(
            "select id from generations where state = 'live' and project_id = $1", project_id
        )
        await connection.execute("select set_config('app.generation_id', $1, false)", str(live))
        return list(await connection.fetch(query, live, *values))
    finally:
        await connection.close()


async def generation_states(opened: OperatorTools, project: str = "docs") -> list[str]:
    """State of each generation of a project, oldest first."""
    return [one.state for one in await opened.store.generations(project)]


def damage_at_once(database: Database, statement: str) -> None:
    """Run a statement on the newest generation (``$1``), from any thread."""

    async def run() -> None:
        connection = await asyncpg.connect(database.owner_url)
        try:
            project_id, newest = await connection.fetchrow(
                "select p.id, max(g.id) from projects p join generations g on g.project_id = p.id"
                " group by p.id"
            )
            await connection.execute(
                "select set_config('app.project_id', $1, false),"
                " set_config('app.generation_id', $2, false), set_config('app.agent', '*', false)",
                str(project_id),
                str(newest),
            )
            await connection.execute(statement, newest)
        finally:
            await connection.close()

    with ThreadPoolExecutor() as pool:
        pool.submit(asyncio.run, run()).result()


async def damage(database: Database, statement: str) -> None:
    """Run the statement in a thread, so that a worker in this loop can release its locks."""
    await asyncio.to_thread(damage_at_once, database, statement)


async def age_switch(database: Database, generation_id: int) -> None:
    """Move the switch to a generation one hour into the past."""
    connection = await asyncpg.connect(database.owner_url)
    try:
        await connection.execute("set row_security = on")
        await connection.execute(
            "select set_config('app.project_id', id::text, false) from projects"
        )
        await connection.execute(
            "update generations set switched_at = switched_at - interval '1 hour' where id = $1",
            generation_id,
        )
    finally:
        await connection.close()
