"""Publishers' keys by the commands that a person types."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.support.cli import Cli, environment_of
from tests.support.databases import Database
from tests.support.processes import WorkerProcess
from tests.support.signing import change


async def test_a_project_is_locked_and_opened_again(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Without the key publishing is refused; the key is printed only when it is made."""
    cli = Cli(environment_of(redis_url, database, tmp_path / "home"))
    (tmp_path / "plant").mkdir()
    (tmp_path / "plant" / "valves.md").write_text("# Valves\n")
    sync = ("sync", str(tmp_path / "plant"), "--project", "docs")

    added = (await cli.typed("keys", "add", "--project", "docs", "--json")).json
    key_id, key = added["key_id"], added["signing_key"]
    async with WorkerProcess(redis_url, database, {}):
        event = change("a.md").to_bytes()
        unsigned, refused, signed, synced = await asyncio.gather(
            cli(*sync),
            cli("publish", "--wait", stdin=change("b.md").to_bytes()),
            cli.typed("publish", "--wait", stdin=event, HEADRACE_SIGNING_KEY=key),
            cli(*sync, "--wait", "--json", HEADRACE_SIGNING_KEY=key),
        )
    assert "HEADRACE_SIGNING_KEY" in unsigned.line
    assert "the event was rejected because the project accepts signed changes" in refused.line
    assert signed.code == 0, signed
    assert synced.json["indexed"] == 1

    listed, last = await asyncio.gather(
        cli("keys", "list", "--project", "docs", "--json"),
        cli("keys", "retire", key_id, "--project", "docs"),
    )
    assert listed.json["key_id"] == key_id
    assert listed.json["retired_at"] is None
    assert key.partition(":")[2] not in listed.stdout
    assert "--last" in last.line
    assert (await cli("keys", "retire", key_id, "--project", "docs", "--last")).code == 0
    assert (await cli("keys", "list", "--project", "docs", "--json")).json["retired_at"]
