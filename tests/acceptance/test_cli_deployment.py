"""Servers of different deployments: commands refuse to mix them until they are adopted."""

from __future__ import annotations

import json
from pathlib import Path

from events.names import Names, Topic
from events.server.connection import connect
from runtime.embedded import EmbeddedPostgres
from tests.support.cli import Cli, environment_of
from tests.support.databases import Database, fresh_database
from tests.support.running import headrace

EVENT = json.dumps(
    {"type": "document.changed", "data": {"project": "docs", "uri": "a", "content": "x"}}
)


async def test_commands_refuse_what_is_not_of_one_deployment(
    redis_url: str, database: Database, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    """Commands refuse a wrong number of partitions and a database of another deployment."""
    cli = Cli(environment_of(redis_url, database, tmp_path / "home"))
    async with headrace(redis_url, database) as running:
        await running.change("a.md", "text")
        found = (await cli("deployment", "--json")).json
        assert (found["prefix"], found["partitions"]) == ("headrace", 1)
        wrong = {"HEADRACE_PARTITIONS": "4"}
        assert "set HEADRACE_PARTITIONS=1" in (await cli("publish", stdin=EVENT, **wrong)).line
        (row,) = (await cli("status", "--project", "docs", "--json")).json["projects"]
        assert row["project"] == "docs"
        assert "no project 'nope'" in (await cli("status", "--project", "nope")).line
    async with fresh_database(postgres_server) as other:
        foreign = Cli(environment_of(redis_url, other, tmp_path / "other"))
        for command in (["status"], ["up"], ["keys", "list", "--project", "docs"]):
            line = (await foreign(*command)).line
            assert found["id"][:12] in line
            assert "HEADRACE_STREAM_PREFIX" in line
        adopted = (await foreign("deployment", "--adopt", "--json", **wrong)).json
        assert (adopted["id"] != found["id"], adopted["partitions"]) == (True, 4)
        assert (await foreign("status")).code == 0
        assert adopted["id"][:12] in (await cli("status")).line
    redis = connect(redis_url)
    assert await redis.xlen(Names().stream(Topic.CHANGED_LIVE)) == 1
    await redis.aclose()
