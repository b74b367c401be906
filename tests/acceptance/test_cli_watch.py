"""``headrace watch`` and ``headrace hook``: documents follow their files and commits."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis import Redis

from events.models import content_hash
from events.names import Names, Topic
from tests.support.cli import Cli, Command, environment_of
from tests.support.crashable_redis import CrashableRedis, redis_binaries
from tests.support.databases import Database
from tests.support.forking import ROOT
from tests.support.processes import WorkerProcess
from tests.support.repositories import create_repository, write_files
from tests.support.waiting import eventually

FILES = 300


@pytest.fixture
async def own_redis(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[CrashableRedis]:
    """Redis that the test may kill."""
    server = CrashableRedis(redis_binaries()[0], tmp_path_factory.mktemp("redis"))
    await server.start()
    yield server
    server.kill()


@asynccontextmanager
async def watching(*arguments: str, environment: Mapping[str, str]) -> AsyncIterator[Command]:
    """Watch that is killed at the end of the context."""
    watch = await Command.start("watch", *arguments, environment=environment)
    try:
        yield watch
    finally:
        watch.send(signal.SIGKILL)
        if watch.is_running:
            await watch.result(30)


def objects(command: Command) -> list[dict[str, Any]]:
    """Objects that a command has printed so far."""
    lines = command.printed().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def totals(command: Command) -> tuple[int, int]:
    """Numbers of documents that a watch has published and deleted."""
    reports = objects(command)
    published, deleted = ([report[key] for report in reports] for key in ("published", "deleted"))
    return sum(published), sum(deleted)


async def test_a_watch_follows_its_sources_until_it_is_stopped(
    own_redis: CrashableRedis, database: Database, tmp_path: Path
) -> None:
    """Saved files and commits become searchable, also after Redis was away; ignored files don't."""
    docs, code = tmp_path / "docs", tmp_path / "code"
    write_files(docs, {".gitignore": "*.log\n", "weir.md": "The weir is low.", "old.md": "Old."})
    repository = create_repository(code, {"mill.md": "The mill stands."})
    environment = environment_of(own_redis.url, database, tmp_path / "home")
    cli = Cli(environment)

    async def finds(words: str) -> list[str]:
        answer = (await cli("ask", "-p", "plant", words, "--mode", "keyword", "--json")).json
        return sorted(result["citation"]["uri"] for result in answer["results"])

    arguments = (str(docs), str(code), "-p", "plant", "--json")
    async with (
        WorkerProcess(own_redis.url, database, {}),
        watching(*arguments, environment=environment) as watch,
    ):
        refused = await cli("watch", str(docs), str(tmp_path / "absent"), "-p", "plant")
        assert "absent doesn't exist" in refused.line, "the first path is not synced before"
        await eventually(lambda: f"watching {code}" in watch.printed(), "it watches", timeout=60)
        assert [report["published"] for report in objects(watch)] == [3, 1]

        write_files(docs, {"weir.md": "The weir is high.", "a.log": "x", "new/sluice.md": "Shut."})
        (docs / "old.md").unlink()
        repository.write({"mill.md": "The mill is not committed."})
        await eventually(lambda: totals(watch) == (6, 1), "the changes are published", timeout=30)
        assert all(report["changed_paths"] for report in objects(watch)[2:])
        assert await eventually(lambda: finds("high"), "it is searchable") == ["weir.md"]

        rows = (await cli("source", "list", "-p", "plant", "--json")).objects
        assert {row["next"] for row in rows} == {f"watch (process {watch.pid})"}
        own_redis.kill()
        repository.commit({"mill.md": "The mill grinds."})
        await eventually(lambda: "next try in 1 s" in watch.printed(), "a failure", timeout=30)
        assert f"{code}: " in watch.printed()
        await own_redis.start()
        await eventually(lambda: finds("grinds"), "the commit is searchable", timeout=60)

        shutil.rmtree(code)
        await eventually(lambda: "its documents stay" in watch.printed(), "it is gone", timeout=30)
        write_files(docs, {"new/sluice.md": "The sluice is open."})
        await eventually(lambda: finds("open"), "the other source is followed", timeout=30)
        watch.send(signal.SIGTERM)
        result = await watch.result(30)
    assert result.code == 0
    assert result.stderr.splitlines()[-1].endswith(" syncs: 8 published, 1 deleted")


async def test_a_sync_after_a_killed_watch_equals_the_source(
    redis_url: str, database: Database, tmp_path: Path
) -> None:
    """Whatever a killed watch had published, the next sync leaves the text of every file."""
    docs = tmp_path / "docs"
    environment = environment_of(redis_url, database, tmp_path / "home")
    cli = Cli(environment)
    streams = [Names().stream(topic) for topic in (Topic.CHANGED_LIVE, Topic.CHANGED_BULK)]
    write_files(docs, {f"{number}.md": f"first {number}" for number in range(FILES)})
    await cli("sync", str(docs))
    with Redis.from_url(redis_url) as redis:

        def published() -> int:
            return sum(redis.xlen(stream) for stream in streams)

        async def kill_after(changes: int) -> None:
            """Kill a watch once it has published this many changes of a batch."""
            async with watching(str(docs), "--json", environment=environment) as watch:
                await eventually(lambda: "watching" in watch.printed(), "it watches", timeout=60)
                before = published()
                for number in range(FILES):
                    (docs / f"{number}.md").write_text(f"{changes} {number}")
                (docs / "0.md").unlink()
                await eventually(lambda: published() >= before + changes, "published", timeout=30)
            await expire_leases(database)

        for changes in (0, 1, FILES // 2):
            await kill_after(changes)
            write_files(docs, {f"{number}.md": f"{changes} again" for number in range(2, 9)})
        expected = {path.name: content_hash(path.read_text()) for path in docs.iterdir()}
        async with WorkerProcess(redis_url, database, {}):
            report = (await cli("sync", str(docs), "--wait", "--json")).json
        assert report["found"] == len(expected)
    assert await hashes(database) == expected


async def test_hooks_publish_each_commit_and_never_fail_one(
    redis_url: str, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits and amends are synced behind git; a log names the reason of a failure."""
    repository = create_repository(tmp_path / "code", {"mill.md": "The mill stands."})
    own = repository.path / ".git" / "hooks" / "post-commit"
    own.parent.mkdir(exist_ok=True)
    own.write_text(f"#!/bin/sh\necho done >> {tmp_path / 'own'}\n")
    own.chmod(0o755)
    before = own.read_bytes()
    environment = environment_of(redis_url, database, tmp_path / "home")
    for name, value in {**environment, "PYTHONPATH": str(ROOT)}.items():
        monkeypatch.setenv(name, value)
    cli = Cli(environment)
    log = tmp_path / "home" / "hook.log"

    async def holds(text: str) -> bool:
        return (await hashes(database)).get("mill.md") == content_hash(text)

    repository.git("config", "core.hooksPath", str(tmp_path / "shared"))
    assert "also for other repositories" in (await cli("hook", "install", str(own.parents[2]))).line
    repository.git("config", "--unset", "core.hooksPath")
    installed = await cli("hook", "install", str(repository.path), "-p", "plant")
    assert str(log) in installed.stdout
    async with WorkerProcess(redis_url, database, {}):
        repository.commit({"mill.md": "The mill grinds."})
        await eventually(lambda: holds("The mill grinds."), "the commit is stored", timeout=60)
        [row] = (await cli("source", "list", "-p", "plant", "--json")).objects
        assert row["next"] == "git hooks"
        repository.write({"mill.md": "The mill sleeps."})
        repository.git("commit", "--quiet", "--all", "--amend", "--no-edit")
        await eventually(lambda: holds("The mill sleeps."), "the amend is stored", timeout=60)
    monkeypatch.setenv("HEADRACE_REDIS_URL", "redis://127.0.0.1:1/0")
    repository.commit({"mill.md": "The mill is lost."})
    await eventually(lambda: "a later sync publishes" in log.read_text(), "a reason", timeout=60)
    assert (tmp_path / "own").read_text() == "done\n" * 3, "the hook of the user runs as before"
    assert "no longer sync" in (await cli("hook", "remove", str(repository.path))).stdout
    assert own.read_bytes() == before


async def expire_leases(database: Database) -> None:
    """Let the next sync begin at once; otherwise it waits half a minute for a killed one."""
    connection = await asyncpg.connect(database.owner_url)
    await connection.execute("UPDATE sources SET lease_until = now()")
    await connection.close()


async def hashes(database: Database) -> dict[str, str]:
    """Hash of each stored document's text by uri."""
    connection = await asyncpg.connect(database.owner_url)
    rows = await connection.fetch("SELECT uri, content_hash FROM documents WHERE NOT deleted")
    await connection.close()
    return dict(rows)
