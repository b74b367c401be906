"""Planted secrets during failures: none is in the output, the logs or the stores."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import pytest
from aiohttp import web
from redis.asyncio import Redis

from events.client.client import Client
from events.client.questions import QueryRefused
from events.models import DocumentEmbedded, DocumentIndexed
from runtime.worker_process import worker_process
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.model_server import Fault, ModelServer, running_server
from tests.support.running import PATIENCE
from tests.support.signing import change

REDIS, POSTGRES, MODEL, SIGNING, PROVIDER = (
    f"pl4nted-{name}/+{'z' * 9}" for name in ("redis", "postgres", "model", "signing", "provider")
)
PIECES = ("pl4nted", "zzzzzzzzz")
NOBODY_LISTENS = "127.0.0.1:1"


def found_in(texts: Iterable[str]) -> list[str]:
    """Occurrences of a secret or of a part of one."""
    pieces = re.compile(rf".{{0,60}}(?:{'|'.join(PIECES)}).{{0,60}}")
    return [found for text in texts for found in pieces.findall(text)]


def echoing(code: int) -> Fault:
    """Error response that quotes the keys, as some providers do."""
    said = f"no: Bearer {MODEL}, {quote(MODEL, safe='')}, {PROVIDER}"
    body = {"error": {"message": said, "type": said, "code": said}}
    return lambda _, __: web.json_response(body, status=code, headers={"x-key": MODEL})


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    """Model server that requires the planted key."""
    async with running_server() as server:
        server.key = MODEL
        yield server


def planted(redis_url: str, database: Database, home: Path) -> dict[str, str]:
    """Working settings with planted secrets."""
    return {
        **environment_of(redis_url, database, home),
        "HEADRACE_MODEL_API_KEY": MODEL,
        "HEADRACE_SIGNING_KEY": f"k1:{SIGNING}",
        "OPENAI_API_KEY": PROVIDER,
        "HEADRACE_LOG_LEVEL": "debug",
    }


def broken(redis_url: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Failing commands by name, with their wrong settings."""
    at = urlsplit(redis_url)
    secret = quote(REDIS, safe="")
    rights = f"postgresql://headrace_worker:{quote(POSTGRES, safe='')}"
    return {
        "wrong password": (
            ["status"],
            {"HEADRACE_REDIS_URL": f"redis://default:{secret}@{at.hostname}:{at.port}/0"},
        ),
        "bad Redis URL": (
            ["dead", "list"],
            {"HEADRACE_REDIS_URL": f"redis://:{REDIS}@{NOBODY_LISTENS}/0"},
        ),
        "no TLS": (
            ["dead", "list"],
            {"HEADRACE_REDIS_URL": f"rediss://:{secret}@{at.hostname}:{at.port}/0"},
        ),
        "no Postgres": (
            ["keys", "list", "--project", "docs"],
            {"HEADRACE_DATABASE_URL": f"{rights}@{NOBODY_LISTENS}/headrace"},
        ),
        "bad Postgres URL": (
            ["status"],
            {"HEADRACE_DATABASE_URL": f"postgresql://me:{POSTGRES}@{NOBODY_LISTENS}/headrace"},
        ),
        "no GitHub": (
            ["github", "mill/race", "--allow-private"],
            {"GITHUB_TOKEN": PROVIDER, "GITHUB_API_URL": f"http://{NOBODY_LISTENS}/{PROVIDER}"},
        ),
        "no key": (["publish"], {"HEADRACE_SIGNING_KEY": SIGNING}),
    }


async def test_no_failing_command_prints_a_secret(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """A failing command prints no secret, even with tracebacks at debug level."""
    cli = Cli(planted(redis_url, database, tmp_path / "home"))
    event = change("a.md").to_bytes()

    async def run(name: str, arguments: list[str], settings: dict[str, str]) -> str:
        form = "json" if len(name) % 2 else "console"
        result = await cli(*arguments, stdin=event, **settings, HEADRACE_LOG_FORMAT=form)
        assert result.code == 1, (name, result)
        return f"{name}: {result.stdout}{result.stderr}"

    cases = broken(redis_url)
    said = await asyncio.gather(*(run(name, *case) for name, case in cases.items()))
    assert found_in(said) == []


async def everything_in(redis: Redis, database: Database) -> AsyncIterator[str]:
    """Everything that is stored in Redis and Postgres."""
    async for key in redis.scan_iter():
        kind = await redis.type(key)
        if kind == b"stream":
            yield str(await redis.xrange(key))
        elif kind == b"hash":
            yield str(await redis.hgetall(key))
        else:
            yield str(await redis.get(key))
    connection = await asyncpg.connect(database.owner_url)
    tables = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
    for table in tables:
        rows = await connection.fetch(f"select t::text as line from {table[0]} as t")  # noqa: S608
        for row in rows:
            yield row["line"]
    await connection.close()


async def test_no_failure_of_a_worker_logs_a_secret(
    redis_url: str, database: Database, server: ModelServer, tmp_path: Path
) -> None:
    """Failures of a worker leave no secret in logs, outcomes, dead letters or replies."""
    log = tmp_path / "worker.log"
    environment = planted(redis_url, database, tmp_path / "home") | {
        "HEADRACE_MODEL": "openai/test-model",
        "HEADRACE_MODEL_BASE_URL": server.base_url,
        "HEADRACE_MODEL_REQUESTS": '{"retries": 1}',
        "HEADRACE_LOG_FORMAT": "json",
    }
    stop = timedelta(seconds=30)
    async with (
        worker_process(environment=environment, stop_timeout=stop, log=log),
        Client.connect(redis_url) as client,
        Redis.from_url(redis_url) as redis,
    ):
        receipt = await client.publish(change("right.md"))
        await client.wait([receipt], PATIENCE)
        # the model accepts the next request, so that the 400 is attributed to the text
        server.faults.extend([echoing(500), echoing(500), echoing(400)])
        receipt = await client.publish(change("wrong.md", "# Other words\n"))
        outcome = (await client.wait([receipt], PATIENCE))[receipt.token]
        assert isinstance(outcome, DocumentIndexed)
        embedded = (await client.wait([receipt], PATIENCE, vectors=True))[receipt.token]
        assert isinstance(embedded, DocumentEmbedded)
        assert embedded.data.chunks_refused == 1
        server.faults.extend([echoing(401)] * 2)
        with pytest.raises(QueryRefused) as refused:
            await client.ask("docs", "which words?", mode="vector")
        stored = [text async for text in everything_in(redis, database)]
    said = log.read_text()
    assert "wrong.md" in "".join(stored)
    assert "SSL" not in said
    assert found_in([said, *stored, str(outcome), str(refused.value)]) == []
