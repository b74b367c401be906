"""Redis users: each role can do its own work, and nothing else."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, ResponseError

from events.client.client import Client
from events.client.operator_client import OperatorClient
from events.models import DocumentIndexed
from events.names import Topic
from events.replays import ReplayState, ReplayStates
from events.server.acl import Role
from events.server.connection import connect
from events.streams.backlog import read_backlog
from events.streams.dead_letters import DeadLetter, DeadLetters
from events.streams.groups import read_watermark
from events.streams.trim import trim_queries
from gateway.auth.rates import Rates
from gateway.auth.sessions import Sessions
from processors.doctor.stream_snapshot import read_streams
from processors.embedders.hash_embedder import HASHING_MODEL
from processors.embedding.requests import VectorRequests
from processors.wiring.operator_tools import OperatorTools
from runtime.errors import ConfigurationError, Unauthenticated
from store.documents.pending import PendingDocument
from store.keys.api_keys import ApiKey
from tests.support.api_keys import add_key, authenticator, opened_gateway
from tests.support.crashable_redis import CrashableRedis
from tests.support.databases import Database
from tests.support.doctors import examine
from tests.support.doors import NAMES, Doors, open_doors
from tests.support.replays import replay, tools
from tests.support.running import headrace
from tests.support.waiting import eventually

LIVE = NAMES.stream(Topic.CHANGED_LIVE)
CHUNKED = NAMES.stream(Topic.CHUNKED_LIVE)
QUERIES = NAMES.stream(Topic.QUERY)
JUDGED = NAMES.stream(Topic.JUDGED)
REPLIED = NAMES.replied("query")
OUTCOMES = NAMES.stream(Topic.OUTCOME)
DEAD = NAMES.dead(Topic.CHANGED_LIVE)
REPLIES = NAMES.replies("somebody")
SEEN = NAMES.seen("docs", "some-event", 0)
SESSION = NAMES.gateway("0" * 64, "session")
RATE_OF_MODEL = NAMES.rate_limit("openai", "requests")
FOREIGN = "another:{document.0}:changed.live"

REFUSED = "(?i)no permissions|user executing the script can't"

NOBODY = (
    "FLUSHALL",
    "FLUSHDB",
    "CONFIG GET *",
    "CONFIG SET maxmemory 1",
    "ACL SETUSER default nopass",
    "ACL LIST",
    "SCRIPT FLUSH",
    "SHUTDOWN NOSAVE",
    "KEYS *",
    "SCAN 0",
    "RANDOMKEY",
    "MONITOR",
    "CLIENT LIST",
    "BGREWRITEAOF",
    "REPLICAOF NO ONE",
    f"DEL {LIVE}",
    f"RENAME {LIVE} gone",
    f"DUMP {LIVE}",
    f"XGROUP DESTROY {LIVE} indexer",
    f"XADD {FOREIGN} * event {{}}",
    f"XRANGE {FOREIGN} - +",
)
"""Commands that no role may run."""

FORBIDDEN: dict[Role, tuple[str, ...]] = {
    Role.PUBLISHER: (
        f"XDEL {LIVE} 1-1",
        f"XREADGROUP GROUP indexer me STREAMS {LIVE} >",
        f"XACK {LIVE} indexer 1-1",
        f"XCLAIM {LIVE} indexer me 0 1-1",
        f"XINFO STREAM {LIVE}",
        f"XADD {DEAD} * event {{}}",
        f"XRANGE {DEAD} - +",
        f"XDEL {DEAD} 1-1",
        f"XRANGE {REPLIES} - +",
        f"XADD {CHUNKED} * event {{}}",
        f"GET {SESSION}",
        f"XADD {JUDGED}.dead * event {{}}",
    ),
    Role.ANSWERER: (
        f"XADD {CHUNKED} * event {{}}",
        f"XRANGE {DEAD} - +",
        f"XDEL {QUERIES} 1-1",
        f"XREAD STREAMS {REPLIES} 0",
        f"GET {SEEN}",
        f"GET {SESSION}",
    ),
    Role.WORKER: (
        f"XDEL {LIVE} 1-1",
        f"XDEL {DEAD} 1-1",
        f"XREAD STREAMS {REPLIES} 0",
        f"UNLINK {DEAD}",
    ),
    Role.OPERATOR: (
        f"XGROUP CREATE {LIVE} other 0",
        f"XREADGROUP GROUP indexer me STREAMS {LIVE} >",
        f"XCLAIM {LIVE} indexer me 0 1-1",
    ),
    Role.GATEWAY: (
        f"XDEL {LIVE} 1-1",
        f"XREADGROUP GROUP indexer me STREAMS {LIVE} >",
        f"XACK {LIVE} indexer 1-1",
        f"XADD {DEAD} * event {{}}",
        f"XRANGE {DEAD} - +",
        f"XADD {CHUNKED} * event {{}}",
        f"GET {RATE_OF_MODEL}",
    ),
}
"""Commands that a role may not run, in any version of Redis."""

FORBIDDEN_BY_KEY: dict[Role, tuple[str, ...]] = {
    Role.PUBLISHER: (
        f"XREAD STREAMS {LIVE} 0",
        f"XREAD STREAMS {QUERIES} 0",
        f"XREAD STREAMS {JUDGED} 0",
        f"GET {REPLIED}",
        f"SET {REPLIED} forged",
        f"XTRIM {LIVE} MAXLEN 0",
        f"SET {LIVE} gone",
        f"UNLINK {LIVE}",
        f"XADD {REPLIES} * event {{}}",
        f"XADD {OUTCOMES} * event {{}}",
        f"XTRIM {QUERIES} MAXLEN 0",
        f"EVAL return(redis.call('XREAD','STREAMS',KEYS[1],'0')) 1 {LIVE}",
        f"EVAL return(redis.call('XRANGE',KEYS[1],'-','+')) 1 {DEAD}",
    ),
    Role.ANSWERER: (
        f"XADD {JUDGED} * event {{}}",
        f"XADD {LIVE} * event {{}}",
        f"XREADGROUP GROUP indexer me STREAMS {LIVE} >",
        f"XACK {LIVE} indexer 1-1",
        f"XRANGE {LIVE} - +",
        f"SET {LIVE} gone",
        f"XTRIM {LIVE} MAXLEN 0",
    ),
    Role.WORKER: (),
    Role.OPERATOR: (
        f"XDEL {LIVE} 1-1",
        f"XTRIM {LIVE} MAXLEN 0",
        f"SET {LIVE} gone",
        f"XACK {QUERIES} answerer 1-1",
        f"UNLINK {DEAD}",
    ),
    Role.GATEWAY: (
        f"XREAD STREAMS {LIVE} 0",
        f"XTRIM {LIVE} MAXLEN 0",
        f"SET {LIVE} gone",
        f"UNLINK {LIVE}",
        f"GETDEL {SEEN}",
        f"XADD {OUTCOMES} * event {{}}",
    ),
}
"""Commands that only a Redis with rules per key can refuse."""


@pytest.fixture
async def doors(own_redis: CrashableRedis) -> Doors:
    """Server with users for one test; the test runs once per installed version."""
    return await open_doors(own_redis.url)


@pytest.fixture
async def admin(doors: Doors) -> AsyncIterator[Redis]:
    """Client of the user with all rights."""
    async with Redis.from_url(doors.admin_url, decode_responses=True) as client:
        yield client


async def refusals(admin: Redis) -> list[tuple[str, str]]:
    """User, and command or key, of each refused command."""
    rows: Sequence[Any] = await admin.acl_log()
    return [(row["username"], row["object"]) for row in rows]


async def letters(doors: Doors, expected: int) -> list[DeadLetter]:
    """Dead letters as the operator lists them, once there are as many as expected."""
    redis = connect(doors.url(Role.OPERATOR))
    try:

        async def enough() -> list[DeadLetter]:
            found = await DeadLetters(redis, NAMES).list()
            return found if len(found) == expected else []

        return await eventually(enough, f"{expected} dead letters")
    finally:
        await redis.aclose()


async def test_each_role_does_its_work_by_its_own_user(
    doors: Doors, admin: Redis, database: Database, tmp_path: Path
) -> None:
    """Workers, clients and operators work with their own users, and Redis refuses no command."""
    publisher = doors.url(Role.PUBLISHER)
    common = {"model": HASHING_MODEL, "home": tmp_path}
    answerer_url = database.worker_url.replace("headrace_worker@", "headrace_answerer@")
    indexing = headrace(
        publisher,
        database,
        only=("indexer", "embedder", "archiver"),
        redis_url=doors.url(Role.WORKER),
        **common,
    )
    answering = headrace(
        publisher,
        database,
        only=("answerer",),
        redis_url=doors.url(Role.ANSWERER),
        database_url=answerer_url,
        **common,
    )
    async with indexing as running, answering:
        assert isinstance(await running.change("a.md", "The mill race is dry."), DocumentIndexed)
        answer = await running.client.ask("docs", "mill race")
        assert [one.citation.uri for one in answer.results] == ["a.md"]
        result = answer.results[0]
        await running.client.judge("docs", answer.query_id, result.chunk_id, "used")
        redis = connect(publisher)
        for stream in (LIVE, QUERIES, JUDGED):
            await redis.xadd(stream, {"event": "{"})
        await redis.aclose()
        await admin.xadd(CHUNKED, {"event": "{"})
        assert {letter.error for letter in await letters(doors, 4)} == {"MalformedEvent"}
        as_worker = connect(doors.url(Role.WORKER))
        await trim_queries(as_worker, NAMES, topic=Topic.JUDGED)
        await as_worker.aclose()
        assert await refusals(admin) == []
        await _operate(doors, database, tmp_path)
        assert await refusals(admin) == []


async def test_a_gateway_works_by_its_own_user(
    doors: Doors, admin: Redis, database: Database
) -> None:
    """It publishes, limits rates and keeps sessions, and Redis refuses no command."""
    key = await add_key(database, "docs", {"ask", "publish"})
    redis = connect(doors.url(Role.GATEWAY))
    rates = Rates(redis, NAMES)
    async with opened_gateway(database) as gateway:
        keys = authenticator(gateway, redis)
        sessions = Sessions(redis, NAMES, keys)
        session = await sessions.redeem(await sessions.issue_ticket(key.text))
        caller = (await sessions.find(session.cookie)).caller
        assert (await rates.spend_request(caller)).remaining > 0
        await sessions.end(session.cookie)
        with pytest.raises(Unauthenticated):
            await keys.authenticate(ApiKey.new().text, "203.0.113.9")
    await redis.aclose()
    async with OperatorClient.connect(doors.url(Role.GATEWAY)) as client:
        receipt = await client.upsert("docs", "a.md", "The mill race is dry.")
        await client.accepted().add("docs", [receipt.token])
        assert await client.accepted().has("docs", receipt.token)
    assert await admin.xlen(LIVE) == 1
    assert await refusals(admin) == []


async def _operate(doors: Doors, database: Database, home: Path) -> None:
    """Run the commands of an operator beside the workers."""
    async with tools(doors.url(Role.OPERATOR), database, home=home) as opened:
        assert {one.dead_letters for one in await read_backlog(opened.redis, NAMES)} == {0, 1}
        dead = DeadLetters(opened.redis, NAMES)
        for letter in await dead.list():
            await dead.redrive((await dead.show(letter.id)).id)
        for letter in await letters(doors, 4):
            await dead.drop(letter.id)
        await _request_vectors(opened)
        assert (await replay(opened)).switched
        states = ReplayStates(opened.redis, NAMES)
        state = ReplayState(project="docs", state="stopped")
        await states.put(state)
        await states.request_stop(state.id)
        await states.forget()
        assert not await states.is_stop_requested(state.id)
        assert [one.id for one in await states.all()] == [state.id]
        assert (await examine(opened, repair=True)).is_healthy
    async with Client.connect(doors.url(Role.OPERATOR)) as client:
        assert (await client.ask("docs", "mill race")).results


async def _request_vectors(opened: OperatorTools) -> None:
    """Request vectors, as a repair of lost requests does."""
    waiting = PendingDocument(
        event_id="1",
        published_at=datetime.now(UTC),
        agent="",
        uri="a.md",
        position=2**21,
        partition=0,
        chunks=1,
    )
    requests = VectorRequests(opened.redis, NAMES, opened.pending)
    await requests.request("docs", await opened.store.generation("docs"), [waiting])


@pytest.mark.parametrize("role", Role)
async def test_no_role_may_do_more(doors: Doors, admin: Redis, role: Role) -> None:
    """Commands beyond the role are refused and have no effect."""
    await admin.xadd(LIVE, {"event": "{}"})
    commands = (*NOBODY, *FORBIDDEN[role], *(FORBIDDEN_BY_KEY[role] if doors.ties_keys else ()))
    client: Any = Redis.from_url(doors.url(role))
    async with client:
        allowed = [command for command in commands if not await _is_refused(client, command)]
    assert allowed == []
    assert await admin.xlen(LIVE) == 1
    assert len(await refusals(admin)) > 0


async def _is_refused(client: Any, command: str) -> bool:
    try:
        await client.execute_command(*command.split())
    except ResponseError as error:
        return re.search(REFUSED, str(error)) is not None
    return False


@pytest.mark.parametrize("role", Role)
async def test_users_are_brought_to_the_same_rules_again(
    doors: Doors, admin: Redis, role: Role
) -> None:
    """Rules are restored without disconnecting users, and added rights are removed."""
    name = f"headrace_{role}"
    as_admin: Any = admin
    before: Any = await admin.acl_getuser(name)
    async with Redis.from_url(doors.url(role)) as redis:
        await redis.ping()
        await as_admin.execute_command("ACL SETUSER", name, "+@all", "~*", "nopass")
        await open_doors(doors.admin_url)
        await redis.ping()
        with pytest.raises(NoPermissionError):
            await redis.flushall()
    assert await admin.acl_getuser(name) == before


async def test_a_refusal_is_never_taken_for_an_empty_stream(admin: Redis, doors: Doors) -> None:
    """A missing permission raises an error instead of reading as an empty stream."""
    as_admin: Any = admin
    name = "headrace_operator"
    rules = "reset on nopass +@all ~* -xinfo"
    await as_admin.execute_command("ACL SETUSER", name, *rules.split())
    await as_admin.xadd(NAMES.stream(Topic.QUERY), {"event": ""}, id="1-1")  # old enough to trim
    redis = connect(doors.url(Role.OPERATOR))
    try:
        for look in (read_watermark, read_backlog, trim_queries, read_streams):
            with pytest.raises((ConfigurationError, NoPermissionError), match=r"(?i)permission"):
                await look(redis, NAMES)
    finally:
        await redis.aclose()


async def test_a_worker_by_a_publisher_s_user_does_not_start(
    doors: Doors, database: Database
) -> None:
    """A worker without permission fails at the start instead of waiting."""
    with pytest.raises(ConfigurationError, match=r"Redis denied permission: .*headrace access"):
        async with headrace(doors.url(Role.PUBLISHER), database, model=HASHING_MODEL):
            pytest.fail("it is ready")


async def test_a_refused_command_is_reported_in_a_line(doors: Doors) -> None:
    """The error names the missing permission and the command that makes users."""
    redis = connect(doors.url(Role.PUBLISHER))
    try:
        with pytest.raises(ConfigurationError, match=r"Redis denied permission: .*headrace access"):
            await read_backlog(redis, NAMES)
        with pytest.raises(ConfigurationError, match=r"Redis denied permission: .*headrace access"):
            await DeadLetters(redis, NAMES).list()
    finally:
        await redis.aclose()
