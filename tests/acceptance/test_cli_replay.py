"""Replay by commands as a person types them, and one-line errors for impossible requests."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from redis.asyncio import Redis

from processors.embedders.hash_embedder import HASHING_MODEL
from runtime.embedded import EmbeddedPostgres
from tests.chaos.replays import Replays, Strike
from tests.support.cli import Cli, environment_of
from tests.support.databases import TEMPLATE, Database, create_database
from tests.support.processes import WorkerProcess
from tests.support.repositories import Repository, create_repository
from tests.support.small_disk import fill, small_disk
from tests.support.waiting import eventually

LAWN = "# Mowing\n\nMow the lawn on Fridays.\n"
ROSES = "# Roses\n\n" + "\n\n".join(
    f"Rule {number}: prune the roses above the third bud in March, and water them every morning."
    for number in range(30)
)
REPLAY = ("replay", "--project", "garden")
DISK_MB = 64
ROOM_KB = 256


@pytest.fixture
async def cli(redis_url: str, database: Database, tmp_path: Path) -> AsyncIterator[Cli]:
    """Command line beside a running worker."""
    environment = environment_of(redis_url, database, tmp_path / "home")
    environment["HEADRACE_MODEL"] = HASHING_MODEL
    async with WorkerProcess(redis_url, database, environment):
        yield Cli(environment)


@pytest.fixture
async def garden(cli: Cli, tmp_path: Path) -> Repository:
    """An indexed repository in the project ``garden``."""
    repository = create_repository(tmp_path / "garden", {"lawn.md": LAWN, "roses.md": ROSES})
    await _sync(cli, repository)
    return repository


@pytest.mark.usefixtures("garden")
async def test_replay_takes_over_and_is_rolled_back(cli: Cli, database: Database) -> None:
    """A generation with another chunking is built, switched to, rolled back and dropped."""
    [old] = await _generations(cli)
    plan = (await cli(*REPLAY, "--chunking", "1:96", "--dry-run", "--json")).json
    assert plan["embedded"] > 0
    assert plan["documents"] == 2
    assert await _generations(cli) == [old]

    report = (await cli.typed(*REPLAY, "--chunking", "1:96", "--json")).json
    assert (report["switched"], report["documents"]) == (True, 2)
    assert report["chunks"] == plan["chunks"] > old["chunks"]
    assert report["embedded"] == plan["embedded"]
    former, new = await _generations(cli)
    assert (former["state"], new["state"]) == ("former", "live")
    assert (former["chunking"], new["chunking"]) == ("2", "1:96")
    assert await _answering(cli) == new["generation"]
    assert "1:96" in (await cli("replay", "list")).stdout

    assert (await cli("replay", "rollback", "--project", "garden", "--json")).json["switched"]
    assert await _answering(cli) == old["generation"]
    assert "drop it in" in (await cli("replay", "drop", str(new["generation"]))).line
    await _let_time_pass(database)
    assert (await cli("replay", "drop", str(new["generation"]), "--json")).json["dropped"]
    assert [one["generation"] for one in await _generations(cli)] == [old["generation"]]


async def test_replay_of_an_edited_repository_embeds_nothing(cli: Cli, garden: Repository) -> None:
    """A replay with the same recipe reuses every cached vector and keeps edits and deletions."""
    garden.git("rm", "--quiet", "lawn.md")
    garden.commit({"tulips.md": "# Tulips\n\nPlant tulips in October.\n"})
    await _sync(cli, garden)
    report = (await cli(*REPLAY, "--json")).json
    assert (report["embedded"], report["documents"]) == (0, 2)
    answer = (await cli("ask", "--project", "garden", "lawn tulips", "--json")).json
    assert answer["generation"] == report["generation"]
    assert {one["citation"]["uri"] for one in answer["results"]} == {"tulips.md", "roses.md"}


@pytest.mark.usefixtures("garden")
async def test_switching_back_and_forth_catches_up(cli: Cli, garden: Repository) -> None:
    """A switch to an older generation first applies the changes published since."""
    [old] = await _generations(cli)
    new = (await cli(*REPLAY, "--chunking", "1:96", "--json")).json["generation"]
    garden.commit({"tulips.md": "# Tulips\n\nPlant tulips in October.\n"})
    await _sync(cli, garden)
    back = (await cli("replay", "switch", str(old["generation"]), "--json")).json
    assert (back["generation"], back["former"], back["caught_up"]) == (old["generation"], new, 1)
    assert "October" in (await cli("ask", "--project", "garden", "tulips")).stdout


@pytest.mark.usefixtures("garden")
async def test_replay_that_cannot_be(cli: Cli) -> None:
    """A replay with impossible options is refused with a reason before anything is built."""
    refused = {
        "--from no-such-event": "no event 'no-such-event' is in the log",
        "--from 2001-02-03T04:05:06Z": "the log begins later, at 20",
        "--from 2999-01-01T00:00:00Z": "lies in the future",
        "--chunking 99": "no chunking '99'",
        "--chunking 1:1": "allow at least 24 tokens",
        "--model openai/text-embedding-3-small": "text-embedding-3-small",
        "--model local/hash-384 --collection old": "leave out --from and --collection",
        "--collection nothing": "no document of garden is in the collection 'nothing'",
        "--gate no-such-directory": "no-such-directory",
    }
    for arguments, expected in refused.items():
        result = await cli(*REPLAY, *arguments.split(), OPENAI_API_KEY="")
        assert expected in result.last_line, arguments
    assert [one["state"] for one in await _generations(cli)] == ["live"]


@pytest.mark.usefixtures("garden")
async def test_generation_that_cannot_be(cli: Cli) -> None:
    """A generation that is unknown or live can't be switched to or dropped; the error says why."""
    [live] = await _generations(cli)
    assert "headrace replay list" in (await cli("replay", "switch", "999999")).line
    assert "headrace replay list" in (await cli("replay", "drop", "999999")).line
    assert "is live" in (await cli("replay", "switch", str(live["generation"]))).line
    assert "is live" in (await cli("replay", "drop", str(live["generation"]))).line
    assert "no former" in (await cli("replay", "rollback", "--project", "garden")).line
    assert "headrace project list" in (await cli("replay", "--project", "nowhere")).line


@pytest.mark.usefixtures("garden")
async def test_second_replay_at_once(cli: Cli) -> None:
    """A second replay of the project is refused, and the first one finishes."""
    first = await Replays(cli.environment).start(
        *REPLAY[1:], strike=Strike("replay.verifying", signal=signal.SIGSTOP)
    )
    await eventually(lambda: _is_stopped(first.pid), "the first replay is half-way", timeout=30)
    try:
        assert "is being replayed by another process" in (await cli(*REPLAY)).line
    finally:
        os.kill(first.pid, signal.SIGCONT)
    assert (await Replays.finished(first)).code == 0


@pytest.mark.usefixtures("garden")
async def test_flipped_byte_in_the_archive(
    cli: Cli, redis_url: str, database: Database, tmp_path: Path
) -> None:
    """The report names a damaged archive file; the live index still answers if its replay fails."""
    await _archived(database, events=2)
    [segment] = _segments(tmp_path / "home" / "archive")
    _flip_byte(segment)
    report = await cli(*REPLAY, "--json")
    assert report.code == 0
    assert any(segment.name in path for path in report.json["damaged"])

    redis = Redis.from_url(redis_url)
    await redis.flushall()
    await redis.aclose()
    assert segment.name in (await cli(*REPLAY)).last_line
    assert await _answering(cli) == report.json["generation"]


async def test_full_disk(
    redis_url: str,
    postgres_server: EmbeddedPostgres,
    tmp_path: Path,
) -> None:
    """A replay fails on a full disk while the live index answers, and succeeds with free space."""
    with small_disk(DISK_MB) as disk:
        database = await _database_on(postgres_server, disk)
        environment = environment_of(redis_url, database, tmp_path / "home")
        environment["HEADRACE_MODEL"] = HASHING_MODEL
        cli = Cli(environment)
        async with WorkerProcess(redis_url, database, environment):
            pages = {f"page-{number}.md": f"# Page {number}\n\n{ROSES}" for number in range(60)}
            await _sync(cli, create_repository(tmp_path / "garden", {**pages, "lawn.md": LAWN}))
            [live] = await _generations(cli)
            with fill(disk, ROOM_KB):
                line = (await cli(*REPLAY, "--chunking", "1:96")).last_line
                assert "Postgres has no room left" in line
                assert await _answering(cli) == live["generation"]
            report = (await cli(*REPLAY, "--chunking", "1:96", "--json")).json
            assert report["switched"]
            assert await _answering(cli) == report["generation"]
        await _drop(postgres_server, database)


async def _sync(cli: Cli, repository: Repository) -> None:
    """Sync, and wait for the vectors: a replay embeds those that are not there yet."""
    result = await cli("sync", str(repository.path), "--project", "garden", "--vectors")
    assert result.code == 0, result.stderr


async def _generations(cli: Cli) -> list[dict[str, object]]:
    return (await cli("replay", "list", "--project", "garden", "--json")).objects


async def _answering(cli: Cli) -> object:
    """Number of the generation that answers."""
    answer = (await cli("ask", "--project", "garden", "mow the lawn", "--json")).json
    assert answer["results"][0]["citation"]["uri"] == "lawn.md"
    return answer["generation"]


async def _let_time_pass(database: Database) -> None:
    """Move the switch into the past, by more than any question may take."""
    await _execute(
        database.owner_url, "UPDATE generations SET switched_at = switched_at - interval '1 hour'"
    )


async def _archived(database: Database, events: int) -> None:
    async def all_of_them() -> bool:
        query = "SELECT coalesce(sum(entries), 0) FROM archive_segments WHERE kind = 'events'"
        return bool(await _value(database.owner_url, query) >= events)

    await eventually(all_of_them, "the events are archived", timeout=30)


def _segments(archive: Path) -> list[Path]:
    """Archive files with events."""
    return list(archive.glob("*/*/events/*"))


def _flip_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def _database_on(server: EmbeddedPostgres, disk: Path) -> Database:
    """Create a migrated database with its rows on another disk than the write-ahead log."""
    owner, name = server.urls("postgres").owner, "on_small_disk"
    directory = disk / "tablespace"
    directory.mkdir()
    shutil.chown(directory, *_owner_of(server))
    directory.chmod(0o700)
    await _execute(owner, f"CREATE TABLESPACE small LOCATION '{directory}'")
    await create_database(server, name, f"{TEMPLATE} TABLESPACE small")
    urls = server.urls(name)
    return Database(name, urls.owner, urls.worker, urls.operator)


def _owner_of(server: EmbeddedPostgres) -> tuple[int, int]:
    status = Path(f"/proc/{server.pid}").stat()
    return status.st_uid, status.st_gid


async def _drop(server: EmbeddedPostgres, database: Database) -> None:
    owner = server.urls("postgres").owner
    await _execute(owner, f"DROP DATABASE {database.name} WITH (FORCE)")
    await _execute(owner, "DROP TABLESPACE small")


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def _value(url: str, query: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(query))
    finally:
        await connection.close()
