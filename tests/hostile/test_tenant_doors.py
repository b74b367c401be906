"""Isolation of projects: 1,000 probes from one project at the documents of another."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from events.client.publisher import Receipt
from events.models import (
    ContentReference,
    DocumentChange,
    DocumentChanged,
    DocumentRejected,
    content_hash,
)
from events.names import Lane, Names, Topic
from events.streams.entries import Entry
from store.store import Store
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.hostile_worker import Suspect, hostile_worker
from tests.support.running import PATIENCE
from tests.support.streams import read_stream
from tests.support.tally import Record
from tests.support.waiting import eventually
from tests.support.writes import RECIPE, opened

MINE, THEIRS = "alpha", "beta"
MARKS = ("zephyrbeta", "zephyrann")
"""Words of the other project and of another agent; no probe may return them."""

TREE = "tree"
"""Name of an overlay of the other project, and of one of another agent."""

QUESTIONS = 600
CHANGES = 100
REPLY_TO = Names().replies("prober")
TARGETS = (
    *(Names().stream(topic) for topic in Topic),
    *(Names().dead(topic) for topic in (Topic.CHANGED_LIVE, Topic.CHANGED_BULK, Topic.QUERY)),
    Names().seen(THEIRS, "event", 0),
    Names().replied("query"),
    Names().trimmed(0),
    "beta",
    "",
    "headrace:{query.0}:replies:",
    "headrace:{query.1}:replies:victim",
    "headrace:{query.0}:replies:victim:extra",
    "other:{query.0}:replies:victim",
)


@dataclass
class Doors:
    """Worker with two projects, and facts of one that a prober from the other uses."""

    suspect: Suspect
    cli: Cli
    token: str
    stored: ContentReference


def document(project: str, uri: str, word: str, **fields: Any) -> DocumentChanged:
    data = {"metadata": {"team": word}, "title": f"About {word}", "collections": ("common",)}
    content = f"# Weirs\n\nThe {word} weir holds the water of the mill.\n"
    change = DocumentChange(
        **{"project": project, "uri": uri, "content": content, **data, **fields}
    )
    return DocumentChanged(data=change)


@pytest.fixture
async def doors(redis_url: str, database: Database, tmp_path: Path) -> AsyncIterator[Doors]:
    mine = [document(MINE, f"docs/{number}.md", "ours") for number in range(10)]
    theirs = [document(THEIRS, f"docs/{number}.md", MARKS[0]) for number in range(10)]
    private = [document(MINE, f"docs/{number}.md", MARKS[1], agent="ann") for number in range(10)]
    async with (
        hostile_worker(redis_url, database, tmp_path / "home") as suspect,
        opened(database.worker_url) as worker,
    ):
        receipts = await suspect.client.publish_many([*mine, *theirs, *private])
        await suspect.client.wait(receipts, PATIENCE)
        store = Store(worker, RECIPE)
        stored = await store.put(THEIRS, f"content of {MARKS[0]}")
        overlays = []
        for project, mark, agent in ((THEIRS, MARKS[0], ""), (MINE, MARKS[1], "ann")):
            source = await store.sources.register(
                project, mark, mark, "directory", f"/{mark}", agent=agent
            )
            overlay = await store.sources.register(
                project, "tree", TREE, "directory", f"/{mark}", agent=agent, base_id=source.id
            )
            overlays += [
                document(project, f"docs/{n}.md", mark, agent=overlay.owner) for n in (0, 99)
            ]
        await suspect.client.wait(await suspect.client.publish_many(overlays), PATIENCE)
        environment = environment_of(redis_url, database, tmp_path / "home")
        yield Doors(suspect, Cli(environment), receipts[15].token, stored)


def question(rng: random.Random, number: int, token: str) -> dict[str, Any]:
    """Random query of my project that asks for documents of the other project."""
    filters: dict[str, Any] = rng.choice(
        [
            {},
            {"metadata": {"team": MARKS[0]}},
            {"collections": ["common"]},
            {"uri_prefix": "docs/"},
            {"kinds": ["markdown"], "metadata": {"team": MARKS[1]}},
        ]
    )
    data: dict[str, Any] = {
        "project": MINE,
        "text": rng.choice(
            [MARKS[0], MARKS[1], "zephyrbeto", "zephyran", f"project:{THEIRS}", "*"]
        ),
        "agent": rng.choice([None, None, "bob", "beta", "Ann", "ann.", "ANN"]),
        "overlay": rng.choice([None, None, TREE]),
        "mode": rng.choice(["hybrid", "keyword", "vector"]),
        "limit": rng.choice([1, 100]),
        "filters": filters,
        "min_event": rng.choice([None, None, token]),
        "max_wait_ms": 20,
        "explain": True,
        "context_tokens": rng.choice([None, 4_000]),
        "reply_to": REPLY_TO if number % 10 else rng.choice(TARGETS),
    }
    kept = {name: value for name, value in data.items() if value is not None}
    extras: list[dict[str, Any]] = [
        *([{}] * 6),
        {"project": [MINE, THEIRS]},
        {"projects": [THEIRS]},
        {"generation": 1001},
    ]
    event = {"id": f"probe-{number}", "type": "query.requested", "data": kept | rng.choice(extras)}
    more: list[dict[str, Any]] = [{}, {"project": THEIRS}, {"source": THEIRS, "subject": THEIRS}]
    return event | rng.choice(more)


async def test_no_question_brings_anything_of_theirs(doors: Doors, record: Record) -> None:
    """No reply contains the other project's text, and no query changes a key of others."""
    rng, names, redis = random.Random(5), Names(), doors.suspect.redis
    await doors.suspect.settled()
    before = await keys_of(doors.suspect)
    events = [question(rng, number, doors.token) for number in range(QUESTIONS)]
    for event in events:
        entry_id: Any = await redis.xadd(
            names.stream(Topic.QUERY), {"event": json.dumps(event).encode()}
        )
    await doors.suspect.passed({Topic.QUERY: entry_id.decode()})
    replies = await read_stream(redis, REPLY_TO)
    found: Counter[str] = Counter(json.loads(one.fields[b"event"])["type"] for one in replies)
    assert found["query.answered"] > QUESTIONS / 4, "probes must be answered, or they prove nothing"
    assert_clean(replies, events)
    assert await keys_of(doors.suspect) == before
    found["refused, with no reply"] = QUESTIONS - found.total()
    record("questions at another project", found)


def assert_clean(replies: Sequence[Entry], events: Sequence[dict[str, Any]]) -> None:
    """Assert that the marks appear only where a reply repeats the question."""
    asked = {event["id"]: event for event in events}
    for entry in replies:
        reply = json.loads(entry.fields[b"event"])["data"]
        assert reply.get("project", MINE) == MINE
        text = json.dumps({name: reply.get(name) for name in ("results", "context", "problem")})
        for mark in MARKS:
            assert mark not in text, (asked[reply["query_id"]], reply)
            assert mark not in reply.get("corrections", {}).values(), reply


async def keys_of(suspect: Suspect) -> dict[str, int]:
    """Number of entries by key, without the keys of questions and of the prober."""
    own = (":requested", ":replied:", REPLY_TO)
    found = {}
    async for key in suspect.redis.scan_iter("*", count=1000):
        name = key.decode()
        if not any(part in name for part in own):
            is_stream = await suspect.redis.type(key) == b"stream"
            found[name] = await suspect.redis.xlen(key) if is_stream else 1
    return found


async def test_no_change_touches_or_takes_what_is_theirs(doors: Doors, record: Record) -> None:
    """Changes with the other project's uris, content hashes and event ids leave it unchanged."""
    client, found = doors.suspect.client, Counter[str]()
    theirs = document(THEIRS, "docs/0.md", MARKS[0])
    events = []
    for number in range(CHANGES):
        uri = f"docs/{number % 10}.md"
        kinds: list[dict[str, Any]] = [
            {"uri": uri, "content_ref": doors.stored, "content_hash": doors.stored.sha256},
            {"uri": uri, "change": "delete"},
            {"uri": f"stolen/{number}.md", "old_uri": uri, "change": "rename", "content": "mine"},
            {"uri": uri, "content_ref": {"sha256": content_hash("x"), "size_bytes": 1}},
        ]
        fields = kinds[number % 4]
        change = DocumentChange(project=MINE, agent="bob" if number % 3 else None, **fields)
        events.append(DocumentChanged(data=change, id=theirs.id if number == 0 else f"e{number}"))
    receipts: list[Receipt] = await client.publish_many(events, Lane.BULK)
    assert not any(receipt.duplicate for receipt in receipts)
    outcomes = await client.wait(receipts, PATIENCE)
    for receipt, event in zip(receipts, events, strict=True):
        outcome = outcomes[receipt.token]
        refused = isinstance(outcome, DocumentRejected)
        assert refused == (event.data.content_ref is not None), outcome
        found["refused" if refused else "of mine only"] += 1
    answer = await client.ask(THEIRS, MARKS[0], limit=100)
    assert {one.citation.uri for one in answer.results} == {f"docs/{n}.md" for n in range(10)}
    record("changes at another project", found)


STATEMENTS = (
    "select t::text from {table} t",
    "select t::text from only {table} t where true or t::text ~ '.'",
    "select string_agg(t::text, '') from (select * from {table}) t",
    "update {table} set {column} = {column} returning {table}::text",
    "delete from {table} returning {table}::text",
    "select t::text from {table} t for update",
    "copy (select * from {table}) to stdout",
)
SCOPES = ("none", "mine", "mine, their generation", "mine, as agent bob")


@pytest.mark.parametrize("role", ["worker"])
async def test_no_statement_of_a_worker_shows_theirs(
    doors: Doors, database: Database, role: str, record: Record
) -> None:
    """No statement shows the other project's rows: on every table, in every scope."""
    owner = await asyncpg.connect(database.owner_url)
    tables = await owner.fetch(
        "select c.relname as table, (select attname from pg_attribute a where a.attrelid = c.oid "
        "and attnum > 0 and not attisdropped and attgenerated = '' and attidentity = '' limit 1) "
        "as column from pg_class c where relkind in ('r', 'p', 'v', 'm') "
        "and relnamespace = 'public'::regnamespace"
    )
    ids = {
        row["name"]: row
        for row in await owner.fetch(
            "select p.name, p.id, g.id as generation from projects p "
            "join generations g on g.project_id = p.id and g.state = 'live'"
        )
    }
    await owner.close()
    scopes = {
        "none": ("", "", ""),
        "mine": (ids[MINE]["id"], "", ids[MINE]["generation"]),
        "mine, their generation": (ids[MINE]["id"], "", ids[THEIRS]["generation"]),
        "mine, as agent bob": (ids[MINE]["id"], "bob", ids[MINE]["generation"]),
    }
    found: Counter[str] = Counter()
    connection = await asyncpg.connect(database.worker_url)
    for row in tables:
        for statement in STATEMENTS:
            for scope in SCOPES:
                sql = statement.format(table=row["table"], column=row["column"])
                found[await probed(connection, sql, scopes[scope])] += 1
    await connection.close()
    assert found["shown"] > 50, "mine must be shown, or nothing is proved"
    record(f"statements of a {role}", found)


async def probed(connection: asyncpg.Connection, sql: str, scope: Sequence[object]) -> str:
    """Run a statement, classify its result, and roll back."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        for name, value in zip(("project_id", "agent", "generation_id"), scope, strict=True):
            await connection.execute("select set_config($1, $2, true)", f"app.{name}", str(value))
        if sql.startswith("copy"):
            rows = [await copied(connection, sql)]
        else:
            rows = [str(row[0]) for row in await connection.fetch(sql)]
    except asyncpg.PostgresError as error:
        rows, shown = [str(error)], "denied"
    else:
        shown = "shown" if any(rows) else "empty"
    finally:
        await transaction.rollback()
    # the words for spelling corrections belong to the project; queries check agents themselves
    marks = MARKS[:1] if " keyword_" in sql else MARKS
    assert not any(mark in row for row in rows for mark in marks), sql
    return shown


async def copied(connection: asyncpg.Connection, sql: str) -> str:
    query = sql.removeprefix("copy (").removesuffix(") to stdout")
    parts: list[bytes] = []

    async def keep(part: bytes) -> None:
        parts.append(part)

    await connection.copy_from_query(query, output=keep)
    return b"".join(parts).decode(errors="replace")


async def test_no_command_shows_theirs(doors: Doors, tmp_path: Path, record: Record) -> None:
    """No command for one project prints text of the other."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.md").write_text("# Mine\n")
    event = {"project": MINE, "uri": "docs/1.md", "content_ref": doors.stored.model_dump()}
    line = json.dumps({"type": "document.changed", "data": event})
    ask = ("ask", "-p", MINE)
    runs = [
        doors.cli(*ask, MARKS[0], "--min-event", doors.token, "--json"),
        doors.cli(*ask, MARKS[1], "--agent", "bob", "--explain", "--context", "4000"),
        doors.cli(*ask, "weirs", "--under", "docs/", "--collection", "common"),
        doors.cli("sync", str(tmp_path / "mine"), "--project", MINE, "--wait"),
        doors.cli("publish", "--wait", stdin=line + "\n"),
        doors.cli("replay", "--project", MINE, "--dry-run"),
        doors.cli("replay", "list", "--project", MINE),
        doors.cli("doctor", "--project", MINE, "--json"),
    ]
    results = await asyncio.gather(*runs)
    for result in results:
        assert not any(mark in result.stdout + result.stderr for mark in MARKS), result
    assert [result.code for result in results[:4]] == [0, 0, 0, 0]
    assert "no content is stored" in results[4].line
    status = (await doors.cli("status", "--json")).json
    assert MARKS[0] not in json.dumps(status)
    await eventually(lambda: not doors.suspect.defects(), "no defects")
    record("commands", Counter({"clean": len(results) + 1}))
