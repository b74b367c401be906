"""Commands of an operator, and accidents that they repair."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
from redis.asyncio import Redis

from tests.support.cli import Cli, Result, environment_of
from tests.support.databases import Database
from tests.support.drifts import DRIFTS
from tests.support.replays import damage
from tests.support.waiting import eventually

__all__ = ["Operator"]


@dataclass(frozen=True)
class Operator:
    """Command line of a deployment, and access to its servers."""

    redis_url: str
    database: Database
    home: Path

    async def run(self, *arguments: str, stdin: str = "") -> Result:
        """Run ``headrace ARGUMENTS``; check that it succeeds."""
        cli = Cli(environment_of(self.redis_url, self.database, self.home))
        result = await cli(*arguments, stdin=stdin)
        assert result.code == 0, result
        return result

    async def read(self, *arguments: str) -> Any:
        """Run ``headrace ARGUMENTS --json``; return what it prints."""
        return (await self.run(*arguments, "--json")).json

    async def examine(self) -> list[str]:
        """Run the doctor; return the names of its findings about the index."""
        cli = Cli(environment_of(self.redis_url, self.database, self.home))
        report = (await cli("doctor", "--project", "docs", "--json")).json
        [project] = report["projects"]
        return [finding["name"] for finding in project["findings"]]

    async def damage(self, kind: str) -> None:
        """Damage the live index; ``kind`` is a key of ``DRIFTS``."""
        await damage(self.database, DRIFTS[kind].statement)

    async def wait_for_archive(self) -> None:
        """Wait until every change is in the archive."""

        async def is_archived() -> bool:
            rows = (await self.read("status"))["archiver"]
            return all(row["lag"] == row["pending"] == 0 for row in rows)

        await eventually(is_archived, "all changes are archived")

    async def lose_redis(self) -> None:
        """Delete everything in Redis, and let changes in the outbox look a minute old."""
        async with Redis.from_url(self.redis_url) as redis:
            await redis.flushall()
        connection = await asyncpg.connect(self.database.owner_url)
        try:
            await connection.execute(
                "select set_config('app.project_id', id::text, false) from projects"
            )
            await connection.execute(
                "update outbox set created_at = created_at - interval '1 minute'"
            )
        finally:
            await connection.close()
